package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A RateLimit is a limit in the words of Envoy, with what it means to a store.
type RateLimit struct {
	Unit            Unit
	UnitMultiplier  uint32 // units per window, from 1
	RequestsPerUnit uint32 // per window, that is; 0 denies every hit
	Limit           *limiters.Limit
}

// A Rule is a descriptor of the rules that has limits. It does not change and may be shared.
type Rule struct {
	Domain string
	// Name is the way to the rule, such as "user_id.action=reply", for metric labels and logs: valid UTF-8 of at most
	// 200 bytes, longer ones cut and told apart by a hash. It says nothing of a request. Keys with dots or equals signs
	// may give two rules one name.
	Name   string
	Limits []RateLimit // at least one, no two with the same Limit.ID; all are charged or none
	path   []step
}

// A step is how a level of a rule matches an entry: part of what a rule is, whatever stands beside it in the file.
type step struct {
	how        matching
	key, value string
}

// A matching is told from the others by a byte in a key.
type matching byte

const (
	exact    matching = '='
	wildcard matching = '~'
	keyOnly  matching = '*'
	unruled  matching = '?' // no rule has this level
)

func newStep(e Entry) step {
	s := step{exact, e.Key, e.Value}
	switch {
	case strings.Contains(e.Key, "*") || strings.Contains(e.Value, "*"):
		s.how = wildcard
	case e.Value == "":
		s.how = keyOnly
	}
	return s
}

const (
	maxName  = 200
	nameHash = 8 // bytes
)

func name(path []step) string {
	var b strings.Builder
	for i, s := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.key)
		if s.value != "" {
			b.WriteByte('=')
			b.WriteString(s.value)
		}
	}
	full := strings.ToValidUTF8(b.String(), "\uFFFD")
	if len(full) <= maxName {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	tail := "~" + hex.EncodeToString(sum[:nameHash])
	return strings.ToValidUTF8(full[:maxName-len(tail)], "") + tail
}

// Override is the limit of a request that brings its own. It takes the place of unit, multiplier and requests per unit;
// the algorithm, whether denied hits count and where a window starts are those of r, the rule that would match (of its
// first limit, if it has several), and so is a capacity that r sets. A nil r gives a fixed window that counts denied
// hits. A multiplier of 0 means 1. The error tells what cannot be: an unknown unit, a window above 10 years, or a
// number beyond what the algorithm takes.
func (r *Rule) Override(requestsPerUnit uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	spec := limiters.Spec{Algorithm: defaultAlgorithm, CountDenied: true}
	if r != nil && len(r.Limits) > 0 {
		spec = r.Limits[0].Limit.Spec()
	}
	if requestsPerUnit == 0 {
		// Denies everything, whatever the capacity of the rule; a funnel does not take both.
		spec.Capacity = 0
	}
	return newRateLimit(spec, requestsPerUnit, unit, max(multiplier, 1))
}

// newRateLimit completes spec with the rate.
func newRateLimit(spec limiters.Spec, requests uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	window, err := unit.times(multiplier)
	if err != nil {
		return RateLimit{}, err
	}
	spec.Max, spec.Window = int64(requests), window
	limit, err := limiters.New(spec)
	if err != nil {
		return RateLimit{}, err
	}
	return RateLimit{unit, multiplier, requests, limit}, nil
}
