// Package rulesdiff compares two sets of rules over the same requests:
//
//	c := rulesdiff.New(oldRules, newRules, rulesdiff.Options{})
//	err := c.Add(&line) // for each line of a recording, in the order of their times
//	report := c.Report()
//
// Each set of rules decides every request by a [replay.Replayer], which runs the code of the
// server. A request is newly denied if the new rules deny it and the old rules allow it. It is
// newly allowed in the opposite case.
//
// A key is that of a limit's counter, such as user_id=42. A key is newly denied under two
// conditions. Under the new rules, a limit on the key denies at least one of its requests. The old
// rules deny none of the key's requests, for any reason. A key is newly allowed if the same holds
// with the old and the new rules exchanged.
package rulesdiff

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

// Options configures a [Comparison]. The zero value is the default configuration.
type Options struct {
	Replay replay.Options // for each set of rules
	// MaxKeys bounds the keys that are counted for each set of rules; further keys are left out,
	// see [Report.KeysExact]. Requests are always counted. Default 1,000,000.
	MaxKeys int
	Worst   int // the keys listed for each limit, worst first; default 10, and none if negative
}

// A Comparison decides requests under two sets of rules. It is not safe for concurrent use.
type Comparison struct {
	o           Options
	sides       [2]side
	rows        map[uint64]*row // by Rule.LimitHash
	unmatchable *recording.UnmatchableFinder
	from, to    time.Time
	requests    int64
	affected    [2]int64 // requests that only this side denies
}

// The sides of a comparison.
const (
	oldSide = 0
	newSide = 1
)

// A side is one set of rules with its counts.
type side struct {
	rules    *descriptors.Rules
	replayer *replay.Replayer
	result   decide.Result
	number   int // oldSide or newSide
	byRule   map[*descriptors.Rule]*ruleRows
	keys     map[string]*usage
	overflow bool // a key was not counted
	// These count requests: over a limit, without any rule, and invalid under these rules.
	denied, unmatched, undecided int64

	charged []*usage    // keys that the request charges, each once
	denials []keyDenial // the limits that deny the request, each with its key
}

// ruleRows are the rows of the limits of a rule.
type ruleRows struct {
	rows []*row
	last int64 // the number of the last request that reached these limits, from 1
}

// A keyDenial is the denial of a key by a limit. Its key is nil if the key is not counted.
type keyDenial struct {
	row   *row
	key   *usage
	limit int
}

// A usage counts the requests of a key on one side.
type usage struct {
	rule     *descriptors.Rule
	requests int64
	// changed counts, by limit of the rule, the requests that the limit denies and that the other
	// side allows. Nil: none.
	changed []int64
	// deniedByOther reports that the other side denies a request of the key.
	deniedByOther bool
}

// A row is a limit of either side or of both.
type row struct {
	domain, path, name string
	source             [2]string
	text               [2]string // "" if the side has no such limit
	reached            [2]int64  // requests
	changed            [2]int64  // requests that this limit of the side denies, and that the other side allows
}

// New returns a comparison without requests.
func New(before, after *descriptors.Rules, o Options) *Comparison {
	o.MaxKeys, o.Worst = cmp.Or(o.MaxKeys, 1_000_000), cmp.Or(o.Worst, 10)
	c := &Comparison{o: o, rows: map[uint64]*row{}, unmatchable: recording.NewUnmatchableFinder(after, before)}
	for i, rules := range []*descriptors.Rules{before, after} {
		s := &c.sides[i]
		*s = side{number: i, rules: rules, replayer: replay.New(rules, o.Replay), byRule: map[*descriptors.Rule]*ruleRows{},
			keys: map[string]*usage{}}
		for rule := range rules.All() {
			s.byRule[rule] = &ruleRows{}
			for limit := range rule.Limits {
				s.byRule[rule].rows = append(s.byRule[rule].rows, c.row(i, rule, limit))
			}
		}
	}
	return c
}

// row returns the row of a limit.
func (c *Comparison) row(i int, rule *descriptors.Rule, limit int) *row {
	hash := rule.LimitHash(limit)
	r := c.rows[hash]
	if r == nil {
		r = &row{}
		c.rows[hash] = r
	}
	l := &rule.Limits[limit]
	r.domain, r.path, r.name = rule.Domain, rule.Name, l.Name
	r.source[i], r.text[i] = rule.Source(), describe(rule, l)
	return r
}

// Add decides a request under both sets of rules. Lines must be in the order of their times. For
// any other line it returns [replay.ErrEarlier] or [replay.ErrOutOfRange], and does not count the
// line.
func (c *Comparison) Add(line *recording.Line) error {
	var decided [2]bool
	for i := range c.sides {
		s := &c.sides[i]
		err := s.replayer.Decide(line.At, &line.Request, &s.result)
		var failed *decide.Error
		switch {
		case errors.As(err, &failed):
			s.undecided++
		case err != nil:
			return err
		default:
			decided[i] = true
		}
	}
	c.requests++
	if c.requests == 1 {
		c.from = line.At
	}
	c.to = line.At
	c.unmatchable.Add(&line.Request)
	for i := range c.sides {
		if decided[i] {
			c.sides[i].count(c.requests, c.o.MaxKeys)
		}
	}
	if !decided[oldSide] || !decided[newSide] {
		return nil
	}
	for i := range c.sides {
		s, other := &c.sides[i], &c.sides[1-i]
		for _, u := range s.charged {
			u.deniedByOther = u.deniedByOther || other.result.Denied
		}
		if s.result.Denied && !other.result.Denied {
			c.affected[i]++
			s.countDenials()
		}
	}
	return nil
}

// count counts request number n under its limits and keys.
func (s *side) count(number int64, maxKeys int) {
	s.charged = s.charged[:0]
	matched := false
	for i := range s.result.Decisions {
		d := &s.result.Decisions[i]
		matched = matched || d.Rule != nil
		if d.Key == "" || d.EndsLease() || d.HasOverride { // a limit that the request carries is not a limit of the rules
			continue
		}
		if reached := s.byRule[d.Rule]; reached.last != number {
			reached.last = number
			for _, r := range reached.rows {
				r.reached[s.number]++
			}
		}
		u := s.keys[d.Key]
		if u == nil {
			if len(s.keys) >= maxKeys {
				s.overflow = true
				continue
			}
			u = &usage{rule: d.Rule}
			s.keys[d.Key] = u
		}
		if !slices.Contains(s.charged, u) {
			s.charged = append(s.charged, u)
			u.requests++
		}
	}
	if s.result.Denied {
		s.denied++
	}
	if !matched {
		s.unmatched++
	}
}

// countDenials counts a request that only this side denies, for each limit that denies it.
func (s *side) countDenials() {
	s.denials = s.denials[:0]
	for i := range s.result.Decisions {
		d := &s.result.Decisions[i]
		if d.HasOverride || !s.result.CausesDenial(d) {
			continue
		}
		key := s.keys[d.Key]
		for limit := range d.Verdicts { // none if the id of a lease is invalid
			if !d.Verdicts[limit].Allowed {
				s.denials = append(s.denials, keyDenial{s.byRule[d.Rule].rows[limit], key, limit})
			}
		}
	}
	for i, denial := range s.denials {
		row, key, earlier := denial.row, denial.key, s.denials[:i]
		if !slices.ContainsFunc(earlier, func(o keyDenial) bool { return o.row == row }) {
			row.changed[s.number]++
		}
		if key == nil || slices.Contains(earlier, denial) {
			continue
		}
		if key.changed == nil {
			key.changed = make([]int64, len(key.rule.Limits))
		}
		key.changed[denial.limit]++
	}
}

// describe returns a limit in one line: "5 per minute, funnel, capacity=10". Limits that decide
// alike have one description.
func describe(rule *descriptors.Rule, l *descriptors.RateLimit) string {
	spec := l.Spec()
	parts := []string{l.RateText(), spec.Algorithm}
	for _, p := range limiters.Parameters(spec.Algorithm) {
		if text := p.Text(spec.Params); text != "" && !p.Derived {
			parts = append(parts, p.Key+"="+text)
		}
	}
	if spec.CountDenied != limiters.CountsDeniedByDefault(spec.Algorithm) {
		parts = append(parts, fmt.Sprintf("count_denied=%t", spec.CountDenied))
	}
	if rule.ShadowMode {
		parts = append(parts, "shadow_mode")
	}
	if rule.QuotaMode {
		parts = append(parts, "quota_mode")
	}
	if len(rule.Replaces) > 0 {
		parts = append(parts, "replaces "+strings.Join(rule.Replaces, " "))
	}
	return strings.Join(parts, ", ")
}
