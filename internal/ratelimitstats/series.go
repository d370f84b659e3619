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

// A series holds the counters of one name.
type series struct {
	counts   [numCounters]atomic.Uint64
	dropped  atomic.Bool // removed from its table: callers that keep the series must look it up again
	labels   []string    // the domain, and the parts of the name as key1, key2, ...
	isShared bool        // the shared series, for names beyond the bound

	owners []descriptors.RuleID // the rules that count here; guarded by the table's lock
	seen   uint64               // the sum of the counts when sweep last saw it change
	since  time.Time            // the time of that change

	statsd string // the name in statsd, set at the first use
	sent   tally  // the part of counts that was sent to statsd
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

// A table holds at most max series, because some names come from requests. Beyond the bound, new
// names of a domain count on one shared series. A series unchanged for maxIdle is dropped.
type table struct {
	max        int
	sharedName func(domain string) (string, []string) // the name of the shared series

	overflows atomic.Uint64 // counts that went to a shared series
	full      atomic.Bool   // a name had no room, and no series was dropped since
	swept     atomic.Int64  // when a full table was last searched for idle series: ns since 1970

	mu     sync.RWMutex
	series map[string]*series
	shared int // the number of shared series

	sending bool      // constant: keep dropped series in retired until their last counts are sent
	retired []*series // dropped, with counts to send; at most max
}

const (
	maxIdle = 24 * time.Hour
	// sweepInterval is the minimum time between two searches of a full table for idle series.
	sweepInterval = time.Minute
)

// get returns the series with a name, creating it if there is room. It adds the owner to the
// series.
func (t *table) get(domain string, parts []string, owner descriptors.RuleID) *series {
	var stack [256]byte
	name := appendName(stack[:0], domain, parts)
	if s := t.find(name, owner); s != nil {
		return s
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.series[string(name)]; s != nil {
		if !slices.Contains(s.owners, owner) {
			s.owners = append(s.owners, owner.Clone())
		}
		return s
	}
	if len(t.series)-t.shared < t.max || t.evictIdle() {
		return t.insert(string(name), owner)
	}
	t.overflows.Add(1)
	t.full.Store(true)
	domain, parts = t.sharedName(domain)
	name = appendName(name[:0], domain, parts)
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
func (t *table) find(name []byte, owner descriptors.RuleID) *series {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if s := t.series[string(name)]; s != nil {
		if slices.Contains(s.owners, owner) {
			return s
		}
		return nil
	}
	if len(t.series)-t.shared < t.max || t.canEvict(time.Now()) {
		return nil
	}
	domain, parts := t.sharedName(owner.Domain)
	var stack [256]byte
	s := t.series[string(appendName(stack[:0], domain, parts))]
	if s != nil {
		t.overflows.Add(1)
		t.full.Store(true)
	}
	return s
}

func (t *table) insert(name string, owner descriptors.RuleID) *series {
	labels := strings.Split(name, string([]byte{partEnd}))
	s := &series{labels: labels, owners: []descriptors.RuleID{owner.Clone()}, since: time.Now()}
	t.series[name] = s
	return s
}

// isFull reports whether a name that had no room still has none.
func (t *table) isFull() bool { return t.full.Load() && !t.canEvict(time.Now()) }

// canEvict reports whether the table may be searched for idle series again.
func (t *table) canEvict(now time.Time) bool {
	return now.UnixNano()-t.swept.Load() >= int64(sweepInterval)
}

func (t *table) evictIdle() bool {
	now := time.Now()
	if !t.canEvict(now) {
		return false
	}
	t.swept.Store(now.UnixNano())
	t.removeIf(func(s *series) bool { return s.checkIdle(now) })
	return len(t.series)-t.shared < t.max
}

// sweep drops idle series.
func (t *table) sweep() {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeIf(func(s *series) bool { return s.checkIdle(now) })
}

// checkIdle reports whether the counts are unchanged for maxIdle. It compares their sum with
// that of its last call, so that counting needs no clock.
func (s *series) checkIdle(now time.Time) bool {
	sum := uint64(0)
	for i := range s.counts {
		sum += s.counts[i].Load()
	}
	if sum != s.seen {
		s.seen, s.since = sum, now
	}
	return now.Sub(s.since) >= maxIdle
}

// removeStale removes owners, and drops series without owners.
func (t *table) removeStale(removed func(descriptors.RuleID) bool) {
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
		t.full.Store(false)
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
