package descriptors

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A RateLimit is a limit in Envoy's units.
type RateLimit struct {
	*limiters.Limit // the limit that stores charge

	Unit            Unit
	UnitMultiplier  uint32 // units per window, at least 1
	RequestsPerUnit int64  // hits per window, at most limiters.MaxLimit; 0 denies every hit
	// CalendarMonth reports whether the window is a calendar month in UTC although the rule sets no
	// window_start.
	CalendarMonth bool
	// SetsClockStart reports whether the rule sets window_start: clock, which Limit omits because
	// it is the default.
	SetsClockStart bool
	Name           string // optional; sent to Envoy, and referred to by replaces
	// OnError decides an operation if the store fails. OnErrorUnset defers to the Domain.
	OnError limiters.OnError
	// OnDeny is the response to a request that this limit denies. Nil defers to the Domain.
	OnDeny *OnDeny
}

// Label returns the name of l or, if it has none, its index in its rule, i.
func (l *RateLimit) Label(i int) string { return cmp.Or(l.Name, strconv.Itoa(i)) }

// RateText returns the rate in words, see [RateText].
func (l *RateLimit) RateText() string {
	if l.IsConcurrency() {
		return RateText(l.RequestsPerUnit, 0, "")
	}
	return RateText(l.RequestsPerUnit, l.UnitMultiplier, l.Unit.String())
}

// RateText returns a rate in words: "5 per minute", "5 per 2 hours", or without a unit "5 at once".
func RateText(requests int64, multiplier uint32, unit string) string {
	switch {
	case unit == "":
		return fmt.Sprintf("%d at once", requests)
	case multiplier > 1:
		return fmt.Sprintf("%d per %d %ss", requests, multiplier, unit)
	}
	return fmt.Sprintf("%d per %s", requests, unit)
}

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
	// which would be a cache miss: with 100,000 rules, a request of one descriptor would take 19 %
	// more CPU.
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

// A pathNode is a node on the path to a rule: its [NodeSpec] in the form that requests need, and
// its source.
type pathNode struct {
	kind          MatchKind
	isShared      bool   // NodeSpec.ShareThreshold: one counter for all matches
	valueToMetric bool   // NodeSpec.ValueToMetric
	fileOrder     uint32 // from 1; unique in a Builder
	line          uint32 // see SetSource
	from          *source
	key, value    string // the value is the smallest of Values, or the first of Prefixes
	metricName    string // the name in metrics: key, key_value, or key_ and the name of the list
	list          *list  // nil without Values and Prefixes
}

// A MatchKind classifies how a node matches an entry. It is the byte for this match in a [Key].
type MatchKind byte

// The kinds of nodes.
const (
	Exact    MatchKind = '=' // the key and the value
	Values   MatchKind = ',' // the key and one of NodeSpec.Values
	Prefixes MatchKind = '/' // the key and an address in one of NodeSpec.Prefixes
	Wildcard MatchKind = '~' // a key or a value with a '*'
	KeyOnly  MatchKind = '*' // the key and any value
	unruled  MatchKind = '?' // no rule has a node for the entry
)

// Kind returns how a node with s matches an entry.
func (s NodeSpec) Kind() MatchKind {
	switch {
	case len(s.Values) > 0:
		return Values
	case len(s.Prefixes) > 0:
		return Prefixes
	case strings.Contains(s.Key, "*") || strings.Contains(s.Value, "*"):
		return Wildcard
	case s.Value == "":
		return KeyOnly
	}
	return Exact
}

func (n *pathNode) entry() Entry { return Entry{n.key, n.value} }

// values returns the value, or the items of the list; none if n matches every value.
func (n *pathNode) values() iter.Seq[string] {
	switch {
	case n.list != nil:
		return n.list.items()
	case n.value == "":
		return func(func(string) bool) {}
	}
	return func(yield func(string) bool) { yield(n.value) }
}

// text returns "key=value", or the key if n matches every value. A list is shortened, see
// [list.name].
func (n *pathNode) text() string {
	if n.value == "" {
		return n.key
	}
	return n.key + "=" + n.metricName[len(n.key)+1:]
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

// An OverrideBase holds the settings of a rule that a limit in the request keeps. It is comparable
// and holds no reference to the rule.
type OverrideBase struct {
	spec           limiters.Spec
	onError        limiters.OnError
	calendarMonths bool
}

// OverrideBase returns the settings of r that a limit in the request keeps: algorithm, parameters,
// count_denied and on_store_error, from its first limit. A nil or unlimited r has the defaults of
// the default algorithm. With calendarMonths, months are of the calendar, in UTC, unless the rule
// sets window_start.
func (r *Rule) OverrideBase(calendarMonths bool) OverrideBase {
	if r == nil || len(r.Limits) == 0 {
		return OverrideBase{spec: limiters.Spec{
			Algorithm: limiters.DefaultAlgorithm, CountDenied: limiters.CountsDeniedByDefault(limiters.DefaultAlgorithm),
		}, calendarMonths: calendarMonths}
	}
	limit := &r.Limits[0]
	o := OverrideBase{spec: limit.Spec(), onError: limit.OnError, calendarMonths: calendarMonths && !limit.SetsClockStart}
	o.spec.Max, o.spec.Window = 0, 0
	if limit.CalendarMonth {
		o.spec.Params = withoutCalendar(o.spec.Params)
	}
	return o
}

// Limit returns the limit that a request carries, with the settings of o. A multiplier of 0 means
// 1. Under concurrency, requestsPerUnit is the number of slots, at most [limiters.MaxLeases], and
// unit and multiplier are ignored. If the unit is shorter than a day, windows start by the clock
// even if those of the rule follow the calendar. The error reports an unknown unit, a window over
// 10 years, or a number that the algorithm rejects.
func (o OverrideBase) Limit(requestsPerUnit uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	spec, requests := o.spec, int64(requestsPerUnit)
	if !limiters.HasWindow(spec.Algorithm) {
		requests = min(requests, limiters.MaxLeases)
	}
	if requests == 0 {
		// With a limit of 0, NewLimit would reject the rule's capacity.
		spec = spec.Scaled(func(int64) int64 { return 0 })
	}
	if unit < Day {
		spec.Params = withoutCalendar(spec.Params)
	}
	l, err := NewRateLimit(spec, Rate{requests, unit, max(multiplier, 1), o.calendarMonths})
	l.OnError = o.onError
	return l, err
}

// A Rate is a number of requests for each window of Multiplier units. Without windows, it is only a
// number.
type Rate struct {
	Requests   int64
	Unit       Unit
	Multiplier uint32 // at least 1
	// CalendarMonth makes a Month of a fixed window a calendar month in UTC instead of 30 days,
	// unless the Spec sets window_start.
	CalendarMonth bool
}

// NewRateLimit returns a limit with the rate r and the other settings of spec, whose Max and Window
// it ignores. Under an algorithm without windows, it ignores the unit too, and the limit has
// UnitUnknown. The error reports an unknown unit, a window over 10 years, a calendar window shorter
// than a day, or a number that the algorithm rejects.
func NewRateLimit(spec limiters.Spec, r Rate) (RateLimit, error) {
	l := RateLimit{UnitMultiplier: 1, RequestsPerUnit: r.Requests, SetsClockStart: spec.Params.WindowStart == limiters.StartByClock}
	spec.Max, spec.Window = r.Requests, 0
	if limiters.HasWindow(spec.Algorithm) {
		window, err := r.Unit.window(r.Multiplier)
		if err != nil {
			return RateLimit{}, err
		}
		l.Unit, l.UnitMultiplier, spec.Window = r.Unit, r.Multiplier, window
	}
	p := &spec.Params
	if r.CalendarMonth && l.Unit == Month && p.WindowStart == "" && p.TimeZone == "" && acceptsParameter(spec.Algorithm, "window_start") {
		l.CalendarMonth, p.WindowStart = true, limiters.StartByCalendar
	}
	if p.WindowStart == limiters.StartByCalendar {
		if l.Unit < Day {
			return RateLimit{}, &limiters.SpecError{
				Problem: fmt.Sprintf("a calendar window is too short with the unit %v", l.Unit),
				Remedy:  "set 'unit' to day, week, month or year, or remove 'window_start'",
			}
		}
		p.CalendarUnit = l.Unit.String()
	}
	var err error
	if l.Limit, err = limiters.NewLimit(spec); err != nil {
		return RateLimit{}, err
	}
	return l, nil
}

func acceptsParameter(algorithm, parameter string) bool {
	return slices.ContainsFunc(limiters.Parameters(algorithm), func(p limiters.Parameter) bool { return p.Key == parameter })
}

// withoutCalendar returns p with clock windows instead of calendar windows.
func withoutCalendar(p limiters.Params) limiters.Params {
	if p.WindowStart == limiters.StartByCalendar {
		p.WindowStart, p.CalendarUnit, p.TimeZone = "", "", ""
	}
	return p
}
