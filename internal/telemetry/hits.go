package telemetry

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

const (
	hitAllowed = iota
	hitDenied
	hitError
	hitVerdicts
)

var verdictNames = [hitVerdicts]string{"allowed", "denied", "error"}

// hits are weir_hits_total: three counters for each rule, by its name, which a reload does not change. A hundred thousand
// rules are a few MB, where a counter of Prometheus' own for each verdict is a hundred.
type hits struct {
	desc   *prometheus.Desc
	byRule descriptors.PerRule[ruleHits]

	mu    sync.RWMutex
	rules map[owner]*ruleHits // overrides that no rule matches have no name
	next  map[owner]*ruleHits // those that will be rules, while keep is at work
	room  []ruleHits          // for those that come, side by side
}

// ruleHits are the hits of a rule, by verdict, in a cache line of their own: what rules are hit by is unlike among cores.
type ruleHits struct {
	counts
	_ [64 - 8*hitVerdicts]byte
}

type counts [hitVerdicts]atomic.Uint64

// roomFor is how many have their room at once: a page, so that each begins with a line. It stays while one of them does.
const roomFor = 64

func newHits() *hits {
	return &hits{
		desc: prometheus.NewDesc("weir_hits_total", "Hits by rule and verdict: allowed, denied, or error where the store could not "+
			"decide. Looks and refunds are no hits.", []string{"domain", "rule", "verdict"}, nil),
		rules: map[owner]*ruleHits{},
	}
}

// of finds the counters of a rule, or makes them.
func (h *hits) of(o owner) *ruleHits {
	h.mu.RLock()
	found := h.rules[o]
	h.mu.RUnlock()
	if found != nil {
		return found
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if found = h.rules[o]; found == nil {
		if len(h.room) == 0 {
			h.room = make([]ruleHits, roomFor)
		}
		found, h.room = &h.room[0], h.room[1:]
		h.rules[o] = found
		if h.next != nil {
			h.next[o] = found
		}
	}
	return found
}

// keepAtOnce is how many rules keep looks at before it lets those in who wait for the lock.
const keepAtOnce = 1024

// keep drops what rules no longer have, and the texts of the rules before them with it. It is for one caller at a time.
func (h *hits) keep(rules *descriptors.Rules) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = make(map[owner]*ruleHits, len(h.rules))
	keep := func(o owner) {
		if found := h.rules[o]; found != nil {
			h.next[o] = found
		}
	}
	for d := range rules.Domains() {
		keep(owner{domain: d.Name()})
	}
	n := 0
	for r := range rules.All() {
		if n++; n%keepAtOnce == 0 {
			h.mu.Unlock()
			h.mu.Lock()
		}
		keep(ownerOf(r))
	}
	h.rules, h.next = h.next, nil
	h.byRule.Reset(rules)
}

// Describe implements prometheus.Collector.
func (h *hits) Describe(to chan<- *prometheus.Desc) { to <- h.desc }

// Collect implements prometheus.Collector. What nobody has hit is not told.
func (h *hits) Collect(to chan<- prometheus.Metric) {
	h.mu.RLock()
	all := make([]prometheus.Metric, 0, len(h.rules))
	for o, counted := range h.rules {
		for verdict := range counted.counts {
			if n := counted.counts[verdict].Load(); n > 0 {
				all = append(all, metric(h.desc, n, []string{o.domain, o.rule, verdictNames[verdict]}))
			}
		}
	}
	h.mu.RUnlock() // who collects may be slow
	for _, m := range all {
		to <- m
	}
}

func (m *Metrics) hitsOf(d *rls.Decision) *counts {
	if d.Rule == nil {
		return &m.hits.of(owner{domain: d.Domain}).counts
	}
	cached := m.hits.byRule.Of(d.Rule)
	if cached == nil {
		return &m.hits.of(ownerOf(d.Rule)).counts // of rules that have just been replaced
	}
	found := cached.Load()
	if found == nil {
		found = m.hits.of(ownerOf(d.Rule))
		cached.Store(found)
	}
	return &found.counts
}
