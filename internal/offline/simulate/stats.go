package simulate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
)

// stats holds the results of the client model Drop.
type stats struct {
	options Options
	rows    *limitRows
	result  Result
	buckets buckets
	allowed series
	denied  series
	limits  []*limitStats // by row; nil without requests
	keys    int           // over all limits
	sums    sampleSums
	share   float64    // of all keys that the recording has; set by finish
	chunk   []keyStats // room for further keys
	// entries and bytes are the memory of the spans and logs of all keys. Beyond their bounds there
	// is no comparison.
	entries, bytes     int
	noComparisonReason string                  // why no limit is compared; "" within the bounds
	unmatched          map[UnmatchedPath]int64 // with Descriptors 0
	unmatchable        *recording.UnmatchableFinder
	matched            map[*descriptors.Rule]bool
}

const (
	nearPercent      = 80
	maxUnmatchedSeen = 1000      // different key paths
	maxLogBytes      = 256 << 20 // for the sliding logs of all comparisons
)

// limitStats holds the results of one limit.
type limitStats struct {
	requests, denied, hits, near, untracked int64
	peak, peakAt                            int64
	peakKey                                 string
	allowedOver, deniedOver                 series
	keys                                    map[string]*keyStats
	compare                                 *comparison // may be nil
	noComparisonReason                      string      // if compare is nil
}

// keyStats holds the results of one key of a limit. Times are in µs since 1970.
type keyStats struct {
	requests, denied          int64
	firstDenied, lastDenied   int64
	shutOutUntil, shutOutTime int64
	demand                    int64 // the largest in any interval as long as the window
	deniedBy                  uint8 // a bit for each compared algorithm that denied a request
	span                      span
	states                    [len(compared)]limiters.State
}

func newStats(rules *descriptors.Rules, rows *limitRows, o Options) *stats {
	return &stats{
		options: o, rows: rows, limits: make([]*limitStats, len(rows.all)), unmatched: map[UnmatchedPath]int64{},
		unmatchable: recording.NewUnmatchableFinder(rules, nil), matched: map[*descriptors.Rule]bool{},
	}
}

// observe counts one request.
func (s *stats) observe(line *recording.Line, result *decide.Result, err error) {
	s.result.Requests++
	if s.result.From.IsZero() {
		s.result.From = line.At
	}
	s.result.To = line.At
	bucket := s.buckets.bucketOf(line.At, s.merge)
	outcome := decide.Allowed
	switch {
	case err != nil:
		outcome = decide.Undecided
		s.result.Failed++
		if s.result.FirstFailure == "" {
			s.result.FirstFailure = fmt.Sprintf("%s: %v", line.At.Format(time.RFC3339Nano), err)
		}
	case result.Denied:
		outcome = decide.Denied
		s.result.Denied++
		s.denied.count(bucket)
	default:
		s.result.Allowed++
		s.allowed.count(bucket)
	}
	s.compareRecorded(line, outcome)
	s.unmatchable.Add(&line.Request)
	if err != nil {
		s.sums.add(line, nil)
		return
	}
	s.sums.add(line, result)
	matched := false
	for i := range result.Decisions {
		d := &result.Decisions[i]
		if d.Rule != nil || d.HasOverride {
			matched = true
			s.matched[d.Rule] = true
		} else if len(d.Entries) > 0 {
			s.countUnmatched(d)
		}
		if d.EndsLease() {
			continue // the second call of a request
		}
		for j := range d.Verdicts {
			s.observeLimit(d, j, line.At.UnixMicro(), bucket)
		}
	}
	if !matched {
		s.result.Unmatched++
	}
}

// compareRecorded counts the recorded verdict, and whether it differs from the simulated outcome.
// An Undecided outcome, or a recorded verdict without the store, is not compared.
func (s *stats) compareRecorded(line *recording.Line, outcome decide.Outcome) {
	r := &s.result.Recorded
	switch line.By {
	case recording.FromCache:
		r.Cache++
	case recording.FromFallback:
		r.Fallback++
		outcome = decide.Undecided
	case recording.FromError:
		r.Errors++
		outcome = decide.Undecided
	}
	if line.LeftOut > 0 {
		r.Partial++
	}
	if slices.ContainsFunc(line.Request.Descriptors, func(d decide.Descriptor) bool { return d.Override != nil }) {
		r.Overrides++
	}
	switch {
	case !line.HasAllowed:
		r.Unknown++
	case line.Allowed:
		r.Allowed++
		if outcome == decide.Denied {
			r.NewlyDenied++
		}
	default:
		r.Denied++
		if outcome == decide.Allowed {
			r.NewlyAllowed++
		}
	}
}

func (s *stats) countUnmatched(d *decide.Decision) {
	s.result.UnmatchedDescriptors++
	keys := make([]string, len(d.Entries))
	for i, e := range d.Entries {
		keys[i] = e.Key
	}
	path := UnmatchedPath{Domain: d.Domain, Path: strings.Join(keys, ".")}
	if _, known := s.unmatched[path]; !known && len(s.unmatched) >= maxUnmatchedSeen {
		return
	}
	s.unmatched[path]++
}

// merge adapts the series to buckets that have become longer.
func (s *stats) merge(offset, factor int) {
	s.allowed, s.denied = s.allowed.merge(offset, factor), s.denied.merge(offset, factor)
	for _, l := range s.limits {
		if l != nil {
			l.allowedOver, l.deniedOver = l.allowedOver.merge(offset, factor), l.deniedOver.merge(offset, factor)
		}
	}
}

// observeLimit counts the verdict of limit i of a decision at a time in µs.
func (s *stats) observeLimit(d *decide.Decision, i int, at int64, bucket int) {
	row := s.rows.rowOf(d, i)
	l := s.limits[row]
	if l == nil {
		l = &limitStats{keys: map[string]*keyStats{}, noComparisonReason: "each request has a limit of its own"}
		if limit := s.rows.all[row].limit; limit != nil {
			l.compare, l.noComparisonReason = newComparison(limit.Limit)
		}
		s.limits[row] = l
	}
	v := &d.Verdicts[i]
	if v.Err != nil {
		return
	}
	l.requests++
	l.hits = addUpTo(l.hits, max(0, d.Hits))
	if v.Allowed {
		l.allowedOver.count(bucket)
		capacity := d.Limits[i].Capacity()
		if d.Hits > 0 && 100*float64(v.Used) > nearPercent*float64(capacity) {
			l.near++
		}
		if v.Used > l.peak {
			l.peak, l.peakAt, l.peakKey = v.Used, at, d.Key
		}
	} else {
		l.denied++
		l.deniedOver.count(bucket)
	}
	k := s.key(l, d.Key)
	if k == nil {
		l.untracked++
		return
	}
	k.requests++
	if !v.Allowed {
		k.deny(at, v.RetryAfter)
	}
	if l.compare != nil && s.noComparisonReason == "" {
		entries, bytes := l.compare.observe(k, d.Key, at, d.Hits)
		s.grow(entries, bytes, at)
	}
}

// addUpTo returns the sum of two numbers of at least 0, or the largest int64 if that is less.
func addUpTo(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// key returns the statistics of a key. It returns nil for a new key beyond Options.MaxKeys.
func (s *stats) key(l *limitStats, key string) *keyStats {
	if k := l.keys[key]; k != nil {
		return k
	}
	if s.keys >= s.options.MaxKeys {
		return nil
	}
	if len(s.chunk) == 0 {
		s.chunk = make([]keyStats, 256)
	}
	k := &s.chunk[0]
	s.chunk = s.chunk[1:]
	s.keys++
	l.keys[key] = k
	return k
}

func (k *keyStats) deny(at int64, wait time.Duration) {
	if k.denied == 0 {
		k.firstDenied = at
	}
	k.denied++
	k.lastDenied = at
	if until := at + wait.Microseconds(); wait > 0 && until > k.shutOutUntil {
		k.shutOutTime += until - max(at, k.shutOutUntil)
		k.shutOutUntil = until
	}
}

// grow counts memory. At a bound it drops expired hits and logs. If the rest exceeds half of a
// bound, it ends all comparisons.
func (s *stats) grow(entries, bytes int, at int64) {
	s.entries += entries
	s.bytes += bytes
	if s.entries <= s.options.MaxEntries && s.bytes <= maxLogBytes {
		return
	}
	s.entries, s.bytes = 0, 0
	for _, l := range s.limits {
		if l != nil && l.compare != nil {
			l.expire(at)
			for _, k := range l.keys {
				s.entries += len(k.span.live())
				s.bytes += k.states[slidingLog].HeapBytes()
			}
		}
	}
	if s.entries <= s.options.MaxEntries/2 && s.bytes <= maxLogBytes/2 {
		return
	}
	s.noComparisonReason = "the keys have too many hits within one window to compare algorithms in bounded memory: " +
		"record a smaller share of keys"
	for _, l := range s.limits {
		if l == nil {
			continue
		}
		for _, k := range l.keys {
			k.span, k.states = span{}, [len(compared)]limiters.State{}
		}
	}
}

// expire drops the hits and logs of keys that have expired.
func (l *limitStats) expire(at int64) {
	c := l.compare
	if c.pending != nil {
		c.keepBurst()
	}
	for _, k := range l.keys {
		k.span.expire(at - c.window)
		if len(k.span.live()) == 0 {
			k.span.hits = nil
		}
		if log := c.limits[slidingLog]; log != nil && k.states[slidingLog].Log != nil && log.ResetTime(&k.states[slidingLog]) <= at {
			k.states[slidingLog] = limiters.State{}
		}
	}
}

// limitRows are the rows of a Result: for each rule, a row for each of its limits, and then one row
// for the limits that its requests carry. The last row is for limits that requests without a rule
// carry.
type limitRows struct {
	all   []limitRow
	first map[*descriptors.Rule]int // the first row of a rule
}

// A limitRow names the limit of a row. limit is nil in a row for the limits that requests carry.
type limitRow struct {
	rule   *descriptors.Rule
	limit  *descriptors.RateLimit
	number int // the limit's number within the rule
}

func newLimitRows(rules *descriptors.Rules) *limitRows {
	l := &limitRows{first: map[*descriptors.Rule]int{}}
	for rule := range rules.All() {
		l.first[rule] = len(l.all)
		for i := range rule.Limits {
			l.all = append(l.all, limitRow{rule, &rule.Limits[i], i})
		}
		l.all = append(l.all, limitRow{rule: rule})
	}
	l.all = append(l.all, limitRow{})
	return l
}

// rowOf returns the number of the row of limit i of a decision.
func (l *limitRows) rowOf(d *decide.Decision, i int) int {
	if d.Rule == nil {
		return len(l.all) - 1
	}
	if d.HasOverride {
		return l.first[d.Rule] + len(d.Rule.Limits)
	}
	return l.first[d.Rule] + d.IndexInRule(i)
}
