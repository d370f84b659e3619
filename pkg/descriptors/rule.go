package descriptors

import (
	"slices"
	"strings"
)

// A Rule is a rule of a rules file that sets limits or is unlimited. A rule of the file that does
// neither is only a [Node]. A Rule is immutable.
//
// The fields that every request reads come first and close together, because a large set of rules
// exceeds the CPU caches.
type Rule struct {
	// Limits form a [limiters.Group]. Their StateIDs differ. They are empty if and only if the rule
	// is Unlimited.
	Limits []RateLimit
	number uint32 // in the ruleTable, from 1
	// keyKinds are the pathNode.keyKind of the first nodes of path. Key reads them instead of path,
	// which would be a cache miss among many rules, see BenchmarkMatchAmong.
	keyKinds [4]MatchKind
	// Replaces names the limits of the domain that this rule disables for a request, see
	// HasLimitNamed.
	Replaces []string
	// Unlimited allows every hit without counting it.
	Unlimited bool
	// ShadowMode counts and reports hits over the limit, and allows them.
	ShadowMode bool
	// QuotaMode denies a request only if all of its descriptors in quota mode are over their
	// limits.
	QuotaMode bool
	hasLeases bool // a limit has leases
	// DetailedMetric puts the request's values into metric names.
	DetailedMetric bool

	// Metadata is sent to Envoy with an allowed hit. It is nil, or a JSON object of the types
	// string, float64, bool, nil, []any and map[string]any. Callers must not modify it.
	Metadata map[string]any
	Domain   string
	// Name is the path of the rule, such as "user_id.action=reply", for metric labels and logs. It
	// joins the keys of the nodes by dots, each with "=" and the value if the node has one. A list
	// of values or prefixes is joined by commas, and cut beyond 64 bytes. Name is valid UTF-8 of at
	// most 200 bytes, see [TruncateWithHash]. It contains no text of a request, and is not the
	// LimitName. Two rules whose keys or values contain dots or equals signs may share a name.
	Name string
	// LimitName is the name of the limit, or of the first limit that has one; it may be "".
	LimitName string
	path      []pathNode
}

// A RuleID names the metrics of a rule across reloads. Rules that share a name share a RuleID.
// Limits in requests that no rule matches have the RuleID of their domain without a name.
type RuleID struct{ Domain, Name string }

// Clone returns a copy that does not share memory with a request or with replaced rules.
func (id RuleID) Clone() RuleID {
	return RuleID{Domain: strings.Clone(id.Domain), Name: strings.Clone(id.Name)}
}

// ID returns the domain and the name of r.
func (r *Rule) ID() RuleID { return RuleID{r.Domain, r.Name} }

// Mode returns the mode: shadow, quota or enforced.
func (r *Rule) Mode() string {
	switch {
	case r.ShadowMode:
		return "shadow"
	case r.QuotaMode:
		return "quota"
	}
	return "enforced"
}

// UsesLeases reports whether a limit of r has leases. Then the last entry is the id of a request,
// which belongs to no [Key].
func (r *Rule) UsesLeases() bool { return r.hasLeases }

// isLeaseID reports whether the value of entry i is the id of a request. A nil rule has no leases.
func (r *Rule) isLeaseID(i int, entries []Entry) bool {
	return r != nil && r.hasLeases && i == len(entries)-1
}

// MatchesValue reports whether r restricts the value of entry i: a node without a value, or with
// the value "*", does not. It returns false beyond the path of r.
func (r *Rule) MatchesValue(i int) bool {
	if i >= len(r.path) {
		return false
	}
	n := &r.path[i]
	return n.kind != KeyOnly && (n.kind != Wildcard || strings.Trim(n.value, "*") != "")
}

// HasLimitNamed reports whether a limit of r has the name. A request that replaces any name of r is
// not charged to r at all.
func (r *Rule) HasLimitNamed(name string) bool {
	has := func(l RateLimit) bool { return l.Name == name }
	return name != "" && (r.LimitName == name || slices.ContainsFunc(r.Limits, has))
}

// Path returns the configuration of the nodes on the path to r.
func (r *Rule) Path() []NodeSpec {
	path := make([]NodeSpec, len(r.path))
	for i := range r.path {
		n := &r.path[i]
		path[i] = NodeSpec{Entry: n.entry(), ShareThreshold: n.isShared, ValueToMetric: n.valueToMetric}
		if n.list != nil {
			path[i].Value, path[i].Values, path[i].Prefixes = "", slices.Clone(n.list.values), slices.Clone(n.list.prefixes)
		}
	}
	return path
}

const maxRuleNameBytes = 200

func ruleName(path []pathNode) string {
	var b strings.Builder
	for i := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(path[i].text())
	}
	return TruncateWithHash(b.String(), maxRuleNameBytes)
}
