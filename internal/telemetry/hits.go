package telemetry

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

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
	desc *prometheus.Desc

	mu    sync.RWMutex
	rules map[owner]*ruleHits // overrides that no rule matches have no name
}

// ruleHits are the hits of a rule, by verdict, in a cache line of their own: what rules are hit by is unlike among cores.
type ruleHits struct {
	counts
	_ [64 - 8*hitVerdicts]byte
}

type counts [hitVerdicts]atomic.Uint64

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
		found = &ruleHits{}
		h.rules[owner{strings.Clone(o.domain), strings.Clone(o.rule)}] = found // the texts are a part of rules that will go
	}
	return found
}

// keep drops what is no longer to be told.
func (h *hits) keep(which func(owner) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for o := range h.rules {
		if !which(o) {
			delete(h.rules, o)
		}
	}
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

// A note is what a rule holds of where its decisions are counted, so that counting is a few atomic additions. It does not
// change: another one takes its place. It goes with its rule.
type note struct {
	of     *Metrics
	hits   *ruleHits
	series *series  // the first that the rule counted on, the only one but for rules whose names hold runtime values
	levels []string // of series; nil if all decisions of the rule are
	drops  uint64   // of the table, when there was no room and series stood for all names past the bound
}

// noteOf is the note of the rule of a decision, nil without a rule.
func (m *Metrics) noteOf(d *rls.Decision) *note {
	if d.Rule == nil {
		return nil
	}
	n, _ := d.Rule.Note.Load().(*note)
	if n == nil || n.of != m {
		n = &note{of: m, hits: m.hits.of(owner{d.Domain, d.RuleName()})}
		d.Rule.Note.Store(n)
	}
	return n
}

func (m *Metrics) hitsOf(d *rls.Decision) *counts {
	if n := m.noteOf(d); n != nil {
		return &n.hits.counts
	}
	return &m.hits.of(owner{d.Domain, d.RuleName()}).counts
}
