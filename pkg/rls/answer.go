package rls

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// An Answer is what became of a request, for metrics and logs.
type Answer struct {
	GRPC      bool // asked by gRPC, not as JSON
	Code      codes.Code
	Err       error         // why Code is not OK, or a descriptor is undecided, with what is not for the client to read
	Denied    bool          // the overall code is OVER_LIMIT
	Took      time.Duration // from the decoded request until it was decided
	StoreTook time.Duration // 0: the store was not asked

	Domain         string // as asked for
	DomainNotFound bool   // no rules have it
	// Unmatched are the descriptors that no rule limits, but for those without entries and those of an unknown domain.
	Unmatched    [][]descriptors.Entry
	GlobalShadow bool // shadow mode for all made an OK of it
	Decisions    []Decision
}

// A Decision is what one limit said of one descriptor.
type Decision struct {
	Domain   string            // one that the rules have
	Rule     *descriptors.Rule // nil for an override that no rule matches
	Entries  []descriptors.Entry
	Override bool // the limit came with the request
	Limit    descriptors.RateLimit
	Hits     int64 // > 0 charged, 0 looked, < 0 given back
	Shadowed bool  // the rule is in shadow mode: a denial is told as OK
	Verdict  limiters.Verdict
}

// nameOf is the name of a rule, "" without one.
func nameOf(r *descriptors.Rule) string {
	if r == nil {
		return ""
	}
	return r.Name
}
