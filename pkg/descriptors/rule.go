package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A RateLimit is a limit in the words of Envoy, with what it means to a store.
type RateLimit struct {
	Unit            Unit
	UnitMultiplier  uint32 // units per window, from 1
	RequestsPerUnit uint32 // per window, that is; 0 denies every hit
	Limit           *limiters.Limit
	Name            string // as the rules give it, for Envoy to tell and for replaces; "" if they give none
	// OnError is what becomes of a hit that the store cannot decide; unsaid, it is what the Domain says.
	OnError limiters.OnError
}

// A Rule is a descriptor of the rules that has limits, or none on purpose. It does not change and may be shared.
type Rule struct {
	// What each request reads comes first, in one line of memory: of many rules no cache holds the one that is asked for.

	// Limits are all charged or none. No two have the same Limit.ID. There are none if the rule is unlimited, else at
	// least one.
	Limits []RateLimit
	number uint32  // from 1, see chunks and PerRule
	plain  [4]byte // how the first levels match, for those that are neither wildcards nor shared; else 0
	// Unlimited allows every hit, and counts none.
	Unlimited bool
	// ShadowMode counts and reports what is over the limit, and allows it.
	ShadowMode bool
	// QuotaMode lets a descriptor be over its limit without denying the request, unless all such of it are.
	QuotaMode bool
	replacing bool // there are Replaces

	// Metadata is told to Envoy with a hit that passes: nil, or values of the types string, float64, bool, nil, []any and
	// map[string]any, as in JSON. It may not be changed.
	Metadata map[string]any
	// DetailedMetric puts the value of every entry into the names of metrics.
	DetailedMetric bool
	shares         bool // a level has share_threshold
	Domain         string
	// Name is the way to the rule, such as "user_id.action=reply", for metric labels and logs: valid UTF-8 of at most
	// 200 bytes, longer ones cut and told apart by a hash. It says nothing of a request. Keys with dots or equals signs
	// may give two rules one name.
	Name string
	// LimitName is the name of the rate_limit, or of the first of several that has one; "" without.
	LimitName string
	// Replaces names limits of the domain that a request under this rule is not under, see HasName and IsReplacing.
	Replaces []string
	path     []level
	_        [40]byte // to a multiple of 64
}

// IsReplacing tells whether there are Replaces.
func (r *Rule) IsReplacing() bool { return r.replacing }

// HasName tells whether a limit of r has the name, which is what takes all of r out of a request that replaces it.
func (r *Rule) HasName(name string) bool {
	has := func(l RateLimit) bool { return l.Name == name }
	return name != "" && (r.LimitName == name || slices.ContainsFunc(r.Limits, has))
}

// A level is a step of a rule, with what is told of it.
type level struct {
	step
	share         bool   // share_threshold: one counter for all that the wildcard matches
	valueToMetric bool   // value_to_metric
	text          string // of the step
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

func (s step) entry() Entry { return Entry{s.key, s.value} }

const (
	maxName  = 200
	nameHash = 8 // bytes
)

func name(path []level) string {
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

// An Overridden is what a request that brings a limit of its own takes from the rule that would match. It can be compared,
// and holds nothing of the rule.
type Overridden struct {
	spec    limiters.Spec
	onError limiters.OnError
}

// Overridden is the algorithm, whether denied hits count, where a window starts, what a failure of the store means, and a
// capacity that r sets: those of its first limit, if it has several. Of a nil or unlimited r it is a fixed window that counts
// denied hits.
func (r *Rule) Overridden() Overridden {
	if r == nil || len(r.Limits) == 0 {
		return Overridden{spec: limiters.Spec{
			Algorithm: limiters.DefaultAlgorithm, CountDenied: limiters.CountsDeniedByDefault(limiters.DefaultAlgorithm),
		}}
	}
	o := Overridden{r.Limits[0].Limit.Spec(), r.Limits[0].OnError}
	o.spec.Max, o.spec.Window = 0, 0
	return o
}

// By is the limit of the request, in place of unit, multiplier and requests per unit. A multiplier of 0 means 1. The error
// tells what cannot be: an unknown unit, a window above 10 years, or a number beyond what the algorithm takes.
func (o Overridden) By(requestsPerUnit uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	spec := o.spec
	if requestsPerUnit == 0 {
		// Denies everything, whatever the capacity of the rule; a funnel does not take both.
		spec = spec.Scaled(func(int64) int64 { return 0 })
	}
	l, err := NewRateLimit(spec, requestsPerUnit, unit, max(multiplier, 1))
	l.OnError = o.onError
	return l, err
}

// NewRateLimit returns a limit of requests in a window of multiplier units. It sets the Max and the Window of spec.
func NewRateLimit(spec limiters.Spec, requests uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	window, err := unit.times(multiplier)
	if err != nil {
		return RateLimit{}, err
	}
	spec.Max, spec.Window = int64(requests), window
	limit, err := limiters.New(spec)
	if err != nil {
		return RateLimit{}, err
	}
	return RateLimit{Unit: unit, UnitMultiplier: multiplier, RequestsPerUnit: requests, Limit: limit}, nil
}
