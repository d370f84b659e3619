package decide

import (
	"fmt"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// Bounds of a request. Envoy sends one descriptor for each entry of rate_limits on a route, and one
// entry for each action. All limits are charged in one store call, which must be short.
const (
	MaxDescriptors = 100
	MaxEntries     = 64  // maximum entries of a descriptor
	MaxLimits      = 100 // maximum limits of all descriptors together
)

// A Request asks to charge hits to the limits of its descriptors.
type Request struct {
	Domain      string
	Descriptors []Descriptor
}

// A Descriptor is a list of entries. At most one rule matches it.
type Descriptor struct {
	Entries []descriptors.Entry
	// Hits is the number of hits to charge: 0 peeks, and a negative number refunds. Its absolute
	// value is capped at [limiters.MaxHits].
	Hits int64
	// Refund marks a refund even if Hits is 0, so that it is not a peek: it is always allowed.
	// Under a rule with leases it ends the lease. With positive Hits the request is invalid.
	Refund bool
	// Override, if not nil, replaces the limits of the matching rule.
	Override *Override
}

// An Override is a limit that a request carries. The matching rule still determines the algorithm.
type Override struct {
	RequestsPerUnit uint32
	Unit            descriptors.Unit
	UnitMultiplier  uint32 // units per window; 0 means 1
}

// validate returns an error with the texts of envoyproxy/ratelimit where that has the same check.
func (r *Request) validate() error {
	switch {
	case r.Domain == "":
		return invalidRequest("rate limit domain must not be empty")
	case len(r.Descriptors) == 0:
		return invalidRequest("rate limit descriptor list must not be empty")
	case len(r.Descriptors) > MaxDescriptors:
		return invalidRequest("too many descriptors: want at most %d", MaxDescriptors)
	}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		if d.Refund && d.Hits > 0 {
			return invalidRequest("descriptors[%d]: a refund must not have positive hits", i)
		}
		if len(d.Entries) > MaxEntries {
			return invalidRequest("descriptors[%d]: too many entries: want at most %d", i, MaxEntries)
		}
		for j := range d.Entries {
			if d.Entries[j].Key == "" {
				return invalidRequest("descriptors[%d]: entries[%d]: the key must not be empty", i, j)
			}
		}
	}
	return nil
}

func invalidRequest(format string, args ...any) error {
	return &Error{Kind: InvalidRequest, text: fmt.Sprintf(format, args...)}
}
