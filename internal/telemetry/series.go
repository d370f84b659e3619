package telemetry

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A series is the counters of one domain and one list of levels.
type series struct {
	counts [counters]atomic.Uint64
	gone   atomic.Bool // no longer in its table: whoever remembers it must look again
	labels []string    // the domain, then the levels
	other  bool        // it stands for the names past the bound
	alone  counting    // of a rule whose decisions are all counted here

	full atomic.Pointer[counting] // the last one of rules without room, where it is other

	owners []owner   // whose it is; under the table's lock
	seen   uint64    // the sum of the counts when they last changed, as far as sweep knows
	since  time.Time // when that was

	statsd string // the name, once the sender has made it
	sent   tally  // what the sender has sent
}

// An owner is a rule by its name, which a reload does not change. Overrides are owned by the domain alone.
type owner struct{ domain, rule string }

func ownerOf(r *descriptors.Rule) owner { return owner{r.Domain, r.Name} }

// cloned is o without what its texts are parts of: a request, or rules that will go.
func (o owner) cloned() owner { return owner{strings.Clone(o.domain), strings.Clone(o.rule)} }

// A counting is the series that a rule counts on. It does not change: another one takes its place.
type counting struct {
	of     *table
	series *series
	levels []string // of the series, where not all decisions of the rule are of one; else nil
	drops  uint64   // of the table, when there was no room and series stood for all names past the bound
}

// holds tells whether what a rule counted on before is what it counts on now.
func (c *counting) holds() bool {
	return !c.series.gone.Load() && (!c.series.other || c.of.isFullAsOf(c.drops))
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

// fullAsOf is the counting of a rule that s stands for since there is no room, as of so many drops.
func (s *series) fullAsOf(drops uint64) *counting {
	if c := s.full.Load(); c != nil && c.drops == drops {
		return c
	}
	c := &counting{of: s.alone.of, series: s, drops: drops}
	s.full.Store(c)
	return c
}

// A table holds series, and no more than max of them: some are named by what requests say. Past the bound a new name
// counts on a series that stands for all such, of which there are as many as the rules have domains. What did not
// change for the time idle goes.
type table struct {
	max   int
	idle  time.Duration
	now   func() time.Time
	other func(domain string) (string, []string) // the name for those past the bound

	overflows atomic.Uint64 // times that a name went to the other series
	drops     atomic.Uint64 // times that series went
	swept     atomic.Int64  // the last time that a full table was searched for idle ones: ns since 1970

	mu     sync.RWMutex
	series map[string]*series
	others int // of series, those that stand for names past the bound

	sending bool      // somebody sends differences, and wants to know of the last ones
	retired []*series // gone, with differences not yet sent
}

// sweepEvery is how often a full table is searched for what is idle.
const sweepEvery = time.Minute

// get finds the series of a name, or makes it.
func (t *table) get(domain string, levels []string, by owner) *series {
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
	if len(t.series)-t.others < t.max || t.makeRoom() {
		return t.insert(string(name), by)
	}
	t.overflows.Add(1)
	domain, levels = t.other(domain)
	name = appendName(name[:0], domain, levels)
	if s := t.series[string(name)]; s != nil {
		return s
	}
	s := t.insert(string(name), owner{domain: by.domain})
	s.other = true
	t.others++
	return s
}

// find finds what get would make nothing for: a series that is there, or the one for names past the bound.
func (t *table) find(name []byte, domain string) *series {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.series[string(name)]
	if s != nil || len(t.series)-t.others < t.max || t.mayMakeRoom(t.now()) {
		return s
	}
	domain, levels := t.other(domain)
	var stack [256]byte
	if s = t.series[string(appendName(stack[:0], domain, levels))]; s != nil {
		t.overflows.Add(1)
	}
	return s
}

func (t *table) insert(name string, by owner) *series {
	by = by.cloned()
	s := &series{labels: strings.Split(name, string([]byte{levelEnd})), owners: []owner{by}, since: t.now()}
	s.alone = counting{of: t, series: s}
	t.series[name] = s
	return s
}

// own adds an owner to a series that it found.
func (t *table) own(s *series, by owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Contains(s.owners, by) {
		s.owners = append(s.owners, by.cloned())
	}
}

// isFullAsOf tells whether a name for which there was no room still has none, as long as drops were as many; and counts it.
func (t *table) isFullAsOf(drops uint64) bool {
	if t.drops.Load() != drops || t.mayMakeRoom(t.now()) {
		return false
	}
	t.overflows.Add(1)
	return true
}

func (t *table) mayMakeRoom(now time.Time) bool {
	return now.UnixNano()-t.swept.Load() >= int64(sweepEvery)
}

func (t *table) makeRoom() bool {
	now := t.now()
	if !t.mayMakeRoom(now) {
		return false
	}
	t.swept.Store(now.UnixNano())
	t.drop(func(s *series) bool { return s.isIdle(now, t.idle) })
	return len(t.series)-t.others < t.max
}

// sweep drops what is idle.
func (t *table) sweep() {
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(func(s *series) bool { return s.isIdle(now, t.idle) })
}

// isIdle is how counting costs no clock: what changed since it was last asked was used.
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

// forget drops the series of owners that are gone.
func (t *table) forget(gone func(owner) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(func(s *series) bool {
		s.owners = slices.DeleteFunc(s.owners, gone)
		return len(s.owners) == 0
	})
}

func (t *table) drop(which func(*series) bool) {
	for name, s := range t.series {
		if !which(s) {
			continue
		}
		delete(t.series, name)
		s.gone.Store(true)
		t.drops.Add(1)
		if s.other {
			t.others--
		}
		if t.sending && len(t.retired) < t.max {
			t.retired = append(t.retired, s)
		}
	}
}

// all are the series of the moment.
func (t *table) all() []*series {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]*series, 0, len(t.series))
	for _, s := range t.series {
		all = append(all, s)
	}
	return all
}

// takeRetired are the series that went since it was last asked.
func (t *table) takeRetired() []*series {
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := t.retired
	t.retired = nil
	return gone
}

func (t *table) len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.series)
}
