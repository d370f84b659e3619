package ratelimitstats

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A series holds the counters of one domain and one list of levels.
type series struct {
	counts   [counters]atomic.Uint64
	dropped  atomic.Bool // removed from its table: callers that keep the series must look it up again
	labels   []string    // the domain, then the levels
	isShared bool        // the shared series, for names beyond the bound
	soleRef  seriesRef   // for rules whose decisions all count here

	overflow atomic.Pointer[seriesRef] // in a shared series: the latest reference of rules without a series of their own

	owners []descriptors.RuleID // the rules that count here; guarded by the table's lock
	seen   uint64               // the sum of the counts when sweep last saw it change
	since  time.Time            // the time of that change

	statsd string // the name in statsd, set at the first use
	sent   tally  // the part of counts that was sent to statsd
}

// cloneID returns a copy that does not share memory with a request or with replaced rules.
func cloneID(id descriptors.RuleID) descriptors.RuleID {
	return descriptors.RuleID{Domain: strings.Clone(id.Domain), Name: strings.Clone(id.Name)}
}

// A seriesRef refers to the series on which a rule counts, and is cached for the rule. It is
// immutable.
type seriesRef struct {
	table  *table
	series *series
	levels []string // the levels of the series, if the rule counts on several series; else nil
	drops  uint64   // for a shared series: the table's drops when there was no room
}

// valid reports whether the rule still counts on this series.
func (r *seriesRef) valid() bool {
	return !r.series.dropped.Load() && (!r.series.isShared || r.table.isStillFull(r.drops))
}

func (s *series) add(t *tally) {
	for i := range t {
		if t[i] > 0 {
			s.counts[i].Add(t[i])
		}
	}
}

func (s *series) load() (t tally) {
	for i := range t {
		t[i] = s.counts[i].Load()
	}
	return t
}

// overflowRef returns the reference of a rule to the shared series s because the table was full at
// drops.
func (s *series) overflowRef(drops uint64) *seriesRef {
	if r := s.overflow.Load(); r != nil && r.drops == drops {
		return r
	}
	r := &seriesRef{table: s.soleRef.table, series: s, drops: drops}
	s.overflow.Store(r)
	return r
}

// A table holds at most max series, because some names come from requests. Beyond the bound, new
// names of a domain count on one shared series. A series unchanged for the time idle is dropped.
type table struct {
	max        int
	idle       time.Duration
	now        func() time.Time
	sharedName func(domain string) (string, []string) // the name of the shared series

	overflows atomic.Uint64 // counts that went to a shared series
	drops     atomic.Uint64 // series dropped
	swept     atomic.Int64  // when a full table was last searched for idle series: ns since 1970

	mu     sync.RWMutex
	series map[string]*series
	shared int // the number of shared series

	sending bool      // keep dropped series in retired until their last counts are sent
	retired []*series // dropped, with counts to send; at most max
}

// sweepInterval is the minimum time between two searches of a full table for idle series.
const sweepInterval = time.Minute

// get returns the series with a name, creating it if there is room.
func (t *table) get(domain string, levels []string, owner descriptors.RuleID) *series {
	var stack [256]byte
	name := appendName(stack[:0], domain, levels)
	if s := t.find(name, domain); s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.series[string(name)]; s != nil {
		return s
	}
	if len(t.series)-t.shared < t.max || t.evictIdle() {
		return t.insert(string(name), owner)
	}
	t.overflows.Add(1)
	domain, levels = t.sharedName(domain)
	name = appendName(name[:0], domain, levels)
	if s := t.series[string(name)]; s != nil {
		return s
	}
	s := t.insert(string(name), descriptors.RuleID{Domain: owner.Domain})
	s.isShared = true
	t.shared++
	return s
}

// find returns the series with a name, or the shared one if the table is full. It returns nil if
// get must modify the table.
func (t *table) find(name []byte, domain string) *series {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.series[string(name)]
	if s != nil || len(t.series)-t.shared < t.max || t.canEvict(t.now()) {
		return s
	}
	domain, levels := t.sharedName(domain)
	var stack [256]byte
	s = t.series[string(appendName(stack[:0], domain, levels))]
	if s != nil {
		t.overflows.Add(1)
	}
	return s
}

func (t *table) insert(name string, owner descriptors.RuleID) *series {
	owner = cloneID(owner)
	s := &series{labels: strings.Split(name, string([]byte{levelEnd})), owners: []descriptors.RuleID{owner}, since: t.now()}
	s.soleRef = seriesRef{table: t, series: s}
	t.series[name] = s
	return s
}

// addOwner adds an owner to a series.
func (t *table) addOwner(s *series, owner descriptors.RuleID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(s.owners, owner) {
		s.owners = append(s.owners, cloneID(owner))
	}
}

// isStillFull reports whether a name that had no room at drops still has none. If so, it counts an
// overflow.
func (t *table) isStillFull(drops uint64) bool {
	if t.drops.Load() != drops || t.canEvict(t.now()) {
		return false
	}
	t.overflows.Add(1)
	return true
}

// canEvict reports whether the table may be searched for idle series again.
func (t *table) canEvict(now time.Time) bool {
	return now.UnixNano()-t.swept.Load() >= int64(sweepInterval)
}

func (t *table) evictIdle() bool {
	now := t.now()
	if !t.canEvict(now) {
		return false
	}
	t.swept.Store(now.UnixNano())
	t.removeIf(func(s *series) bool { return s.isIdle(now, t.idle) })
	return len(t.series)-t.shared < t.max
}

// sweep drops idle series.
func (t *table) sweep() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeIf(func(s *series) bool { return s.isIdle(now, t.idle) })
}

// isIdle reports whether the counts are unchanged for the time idle. It compares sums, so that
// counting needs no clock.
func (s *series) isIdle(now time.Time, idle time.Duration) bool {
	sum := uint64(0)
	for i := range s.counts {
		sum += s.counts[i].Load()
	}
	if sum != s.seen {
		s.seen, s.since = sum, now
	}
	return now.Sub(s.since) >= idle
}

// dropRemoved removes owners, and drops series without owners.
func (t *table) dropRemoved(removed func(descriptors.RuleID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeIf(func(s *series) bool {
		s.owners = slices.DeleteFunc(s.owners, removed)
		return len(s.owners) == 0
	})
}

func (t *table) removeIf(remove func(*series) bool) {
	for name, s := range t.series {
		if !remove(s) {
			continue
		}
		delete(t.series, name)
		s.dropped.Store(true)
		t.drops.Add(1)
		if s.isShared {
			t.shared--
		}
		if t.sending && len(t.retired) < t.max {
			t.retired = append(t.retired, s)
		}
	}
}

// retire keeps a dropped series until its last counts are sent.
func (t *table) retire(s *series) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.retired) < t.max {
		t.retired = append(t.retired, s)
	}
}

// all returns the series at this moment.
func (t *table) all() []*series {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.AppendSeq(make([]*series, 0, len(t.series)), maps.Values(t.series))
}

// takeRetired returns and clears the dropped series with unsent counts.
func (t *table) takeRetired() []*series {
	t.mu.Lock()
	defer t.mu.Unlock()
	retired := t.retired
	t.retired = nil
	return retired
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.series)
}
