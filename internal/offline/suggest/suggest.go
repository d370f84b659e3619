// Package suggest finds limits for the traffic of a recording:
//
//	c, err := suggest.New(suggest.Options{Rules: rules})
//	err = c.Add(&line) // each line, in the order of their times
//	report, err := c.Report(ctx, 1)
//
// A [Collector] keeps the times and hits of every key, in about five bytes for each request, so it
// reads the recording only once. For each window and algorithm, [Collector.Report] then finds the
// smallest limit that denies no request of a key:
//
//   - fixed_window: the largest count of a window, counted by the code of the server
//   - sliding_log: the largest count of the hits of one window, counted by the code of the server
//   - funnel: the smallest N with which a funnel of N hits in a window denies no request, computed
//     without a run; see [hull]
//
// A limit of N affects exactly the keys whose smallest limit is above N, so these smallest limits
// give the number of affected keys for every N at once. To count the denied requests, Report needs
// a run for each limit, and makes at most 72 for a rule. A run decides the requests of a key by
// package limiters, as a server would.
package suggest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
	"github.com/weir-rls/weir/pkg/replay"
)

// maxRuns bounds the limits of one rule for which denied requests are counted, in addition to the
// limits in the rule.
const maxRuns = 72

// Options configures a [Collector].
type Options struct {
	// Rules are the rules for which to find limits. They may be nil if Paths is not empty.
	Rules *descriptors.Rules
	// Decide holds the settings of the server that the rules are for.
	Decide decide.Options
	// Domain, if not empty, is the only domain of Rules for which to find limits.
	Domain string
	// Paths are key paths for which to find a limit. A descriptor that Rules limit belongs to no
	// path, but a descriptor under an unlimited rule does.
	Paths []Path

	// Unit and Algorithm set the window and the algorithm of the recommendation for a path. By
	// default the Collector chooses them.
	Unit      descriptors.Unit
	Algorithm string
	// Headroom is how far a recommended limit is above the largest need of an ordinary key, as a
	// fraction: 0.2 is 20 %.
	Headroom float64

	// MaxBytes bounds the memory for times and hits. Beyond it, the Collector keeps a sample of the
	// keys, by their hash. Default 512 MiB.
	MaxBytes int64
}

// A Path is a descriptor that a rule could match, such as user_id and action=login.
type Path struct {
	Domain string
	Nodes  []descriptors.NodeSpec
}

// minSample is the smallest number of keys from which a sample allows an estimate.
const minSample = 100

// ErrTooLong is returned for a recording in which a few keys have more requests than fit into
// MaxBytes.
var ErrTooLong = errors.New("the recording is too long")

// A Collector collects the requests of a recording by rule and key. It is not safe for concurrent
// use.
type Collector struct {
	o        Options
	fraction float64    // of all keys that the recording has; set by Report
	sets     []*ruleSet // that of Options.Rules, then that of Options.Paths
	targets  []*target  // in the order of the rules, then of the paths
	byRule   map[*descriptors.Rule]*target
	seen     seenPaths
	bytes    int64
	report   Report // with the counts of lines
}

// A ruleSet plans the requests of a recording by rules.
type ruleSet struct {
	planner     *decide.Planner
	planned     decide.PlannedRequest
	unmatchable *recording.UnmatchableFinder
}

// A target is a rule or a path, with the requests of each of its keys.
type target struct {
	rule     *descriptors.Rule
	isPath   bool
	report   *RuleReport // with the counts of requests
	keys     map[string]*history
	bytes    int64
	halvings uint // only keys whose hash ends with this many zero bits are kept
}

// New returns a Collector without requests.
func New(o Options) (*Collector, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, 512<<20)
	c := &Collector{o: o, byRule: map[*descriptors.Rule]*target{}, seen: seenPaths{paths: map[string]*int64{}}}
	if o.Rules != nil {
		c.addSet(o.Rules)
		for rule := range o.Rules.All() {
			if o.Domain == "" || rule.Domain == o.Domain {
				c.addTarget(&target{rule: rule})
			}
		}
	}
	if len(o.Paths) == 0 {
		return c, nil
	}
	rules, err := rulesOf(o.Paths)
	if err != nil {
		return nil, err
	}
	c.addSet(rules)
	for rule := range rules.All() {
		c.addTarget(&target{rule: rule, isPath: true})
	}
	return c, nil
}

func (c *Collector) addSet(rules *descriptors.Rules) {
	planner := decide.NewPlanner(func() *descriptors.Rules { return rules }, c.o.Decide)
	c.sets = append(c.sets, &ruleSet{planner: planner, unmatchable: recording.NewUnmatchableFinder(rules, nil)})
}

func (c *Collector) addTarget(t *target) {
	t.keys = map[string]*history{}
	t.report = &RuleReport{Domain: t.rule.Domain, Path: t.rule.Name, Source: t.rule.Source(), Note: noteOf(t.rule), target: t}
	c.targets = append(c.targets, t)
	c.byRule[t.rule] = t
}

// noteOf returns the reason why a rule gets no recommendation, or "".
func noteOf(rule *descriptors.Rule) string {
	switch {
	case rule.Unlimited:
		return "the rule is unlimited"
	case rule.UsesLeases():
		return "a limit of concurrency or with reserve depends on how long requests last, which no recording has"
	}
	return ""
}

// rulesOf returns rules with one limit at each path.
func rulesOf(paths []Path) (*descriptors.Rules, error) {
	b := descriptors.NewBuilder()
	nodes := map[string]*descriptors.Node{}
	limited := map[*descriptors.Node]bool{}
	limit, err := descriptors.NewRateLimit(limiters.Spec{Algorithm: limiters.DefaultAlgorithm},
		descriptors.Rate{Requests: 1, Unit: descriptors.Minute, Multiplier: 1})
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		if p.Domain == "" || len(p.Nodes) == 0 {
			return nil, errors.New("a path needs a domain and a key")
		}
		node, path := b.Domain(p.Domain), fmt.Sprintf("%q", p.Domain)
		for _, spec := range p.Nodes {
			path += fmt.Sprintf(" %q=%q", spec.Key, spec.Value)
			if nodes[path] == nil {
				nodes[path] = node.Add(spec)
			}
			node = nodes[path]
		}
		if !limited[node] {
			limited[node] = true
			node.SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{limit}})
		}
	}
	return b.Build(), nil
}

// Add adds a line. Lines must be in the order of their times. It returns [ErrTooLong], or
// [replay.ErrEarlier] for an earlier line, which it does not add.
func (c *Collector) Add(line *recording.Line) error {
	r := &c.report
	if line.At.Before(r.Last) {
		return fmt.Errorf("%w: %s after %s", replay.ErrEarlier, line.At.Format(time.RFC3339Nano), r.Last.Format(time.RFC3339Nano))
	}
	r.Requests++
	if r.First.IsZero() {
		r.First = line.At
	}
	r.Last = line.At
	if line.HasAllowed {
		r.Outcomes++
		if !line.Allowed {
			r.Denied++
		}
	}
	c.seen.add(&line.Request)
	matched, ruled := false, []decide.Plan(nil)
	for _, set := range c.sets {
		if err := set.planner.Plan(&line.Request, &set.planned); err != nil {
			r.Invalid++
			return nil
		}
		set.unmatchable.Add(&line.Request)
		matched = c.addAll(line, &set.planned, ruled) || matched
		ruled = set.planned.Plans
	}
	if !matched {
		r.Unmatched++
	}
	return c.shrinkToBound()
}

// addAll adds each descriptor of a line to the target of its rule. ruled has the plans of
// Options.Rules for the same descriptors, or nil. A descriptor that a rule in ruled limits is
// skipped. matched reports whether a descriptor has a target. It is true even if addAll leaves out
// the descriptor, for example because it carries a limit.
func (c *Collector) addAll(line *recording.Line, planned *decide.PlannedRequest, ruled []decide.Plan) (matched bool) {
	for i := range planned.Plans {
		p := &planned.Plans[i]
		t := c.byRule[p.Rule]
		if p.Rule == nil || t == nil || i < len(ruled) && ruled[i].Rule != nil && !ruled[i].Unlimited() {
			continue
		}
		matched = true
		switch {
		case t.report.Note != "" || p.EndsLease() || len(p.Limits) == 0:
			continue
		case p.HasOverride:
			t.report.Overridden++
			continue
		}
		if line.HasAllowed && !line.Allowed {
			t.report.Denied++
		}
		c.bytes += t.add(p.Key, line.At.UnixMicro(), p.Hits)
	}
	return matched
}

// add adds a request to a key. It returns the growth of the memory, in bytes.
func (t *target) add(key string, at, hits int64) int64 {
	t.report.Requests++
	switch {
	case hits > 0:
		t.report.Hits += min(hits, math.MaxInt64-t.report.Hits)
	case hits == 0:
		t.report.Peeks++
	default:
		t.report.Refunds++
	}
	h := t.keys[key]
	grown := int64(0)
	if h == nil {
		if !isSampled(key, t.halvings) {
			return 0
		}
		h = &history{}
		t.keys[key] = h
		grown = int64(len(key)) + historyOverhead
	}
	before := cap(h.encoded)
	h.add(at, hits)
	grown += int64(cap(h.encoded) - before)
	t.bytes += grown
	return grown
}

// shrinkToBound halves the keys of the largest target until the memory is within its bound.
func (c *Collector) shrinkToBound() error {
	for c.bytes > c.o.MaxBytes {
		largest := slices.MaxFunc(c.targets, func(a, b *target) int { return cmp.Compare(a.bytes, b.bytes) })
		if len(largest.keys) < 2*minSample {
			return fmt.Errorf("%w: %s has too few keys (%d) for a sample, and their requests need more than %d MiB: "+
				"give a shorter recording, or more memory with --max-memory", ErrTooLong, largest.rule.Name, len(largest.keys), c.o.MaxBytes>>20)
		}
		c.bytes -= largest.halve()
	}
	return nil
}

// halve drops half of the keys, by their hash. It returns the number of freed bytes.
func (t *target) halve() (freed int64) {
	t.halvings++
	for key, h := range t.keys {
		if !isSampled(key, t.halvings) {
			freed += int64(len(key)) + historyOverhead + int64(cap(h.encoded))
			delete(t.keys, key)
		}
	}
	t.bytes -= freed
	return freed
}

// maxSeen bounds the key paths that are counted, and maxPaths the key paths in a report.
const maxSeen, maxPaths = 1000, 20

// seenPaths counts the key paths of a recording. It helps users who ask for a path that the
// recording does not have.
type seenPaths struct {
	paths map[string]*int64 // descriptors, by the domain, a zero byte and the keys
	text  []byte
}

func (s *seenPaths) add(r *decide.Request) {
	for i := range r.Descriptors {
		entries := r.Descriptors[i].Entries
		s.text = append(append(s.text[:0], r.Domain...), 0)
		for j := range entries {
			if j > 0 {
				s.text = append(s.text, ',')
			}
			s.text = append(s.text, entries[j].Key...)
		}
		p := s.paths[string(s.text)]
		if p == nil {
			if len(s.paths) == maxSeen {
				continue
			}
			p = new(int64)
			s.paths[string(s.text)] = p
		}
		*p++
	}
}

// A KeyPath is the keys of a descriptor, with the number of descriptors that have them.
type KeyPath struct {
	Domain   string `json:"domain"`
	Path     string `json:"path"` // the keys, separated by commas
	Requests int64  `json:"requests"`
}

func (s *seenPaths) list() []KeyPath {
	all := make([]KeyPath, 0, len(s.paths))
	for text, p := range s.paths {
		domain, path, _ := strings.Cut(text, "\x00")
		all = append(all, KeyPath{domain, path, *p})
	}
	slices.SortFunc(all, func(a, b KeyPath) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Domain, b.Domain), strings.Compare(a.Path, b.Path))
	})
	return all[:min(len(all), maxPaths)]
}

// A history encodes the requests of one key in the order of their times. Each request is one
// varint, twice the time since the previous request in µs. If its last bit is set, a second varint
// has the hits; otherwise they are 1.
type history struct {
	encoded []byte
	last    int64
}

// historyOverhead is the approximate memory of a key for the map and the allocator, in bytes,
// without its text and its history.
const historyOverhead = 120

func (h *history) add(at, hits int64) {
	since := uint64(at-h.last) << 1
	h.last = at
	if hits == 1 {
		h.encoded = binary.AppendUvarint(h.encoded, since)
		return
	}
	h.encoded = binary.AppendVarint(binary.AppendUvarint(h.encoded, since|1), hits)
}

// requests yields the time and the hits of each request.
func (h *history) requests() iter.Seq2[int64, int64] {
	return func(yield func(at, hits int64) bool) {
		at := int64(0)
		for rest := h.encoded; len(rest) > 0; {
			since, n := binary.Uvarint(rest)
			hits := int64(1)
			at, rest = at+int64(since>>1), rest[n:]
			if since&1 != 0 {
				hits, n = binary.Varint(rest)
				rest = rest[n:]
			}
			if !yield(at, hits) {
				return
			}
		}
	}
}

// isSampled reports whether a key belongs to a sample of 1 in 2^halvings. The prefix makes the
// sample independent of the hash by which the recording may have been sampled.
func isSampled(key string, halvings uint) bool {
	if halvings == 0 {
		return true
	}
	sum := sha256.Sum256([]byte("weir suggest\x00" + key))
	return uint(bits.TrailingZeros64(binary.BigEndian.Uint64(sum[:]))) >= halvings
}
