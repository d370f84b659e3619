package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A labelSet holds the label values of a counter. Labels that the counter lacks are empty.
type labelSet struct{ domain, rule, limit, enforced, result string }

func (l labelSet) ruleID() descriptors.RuleID {
	return descriptors.RuleID{Domain: l.domain, Name: l.rule}
}

// clone copies the label values that come from rules, so that replaced rules do not stay in memory.
func (l labelSet) clone() labelSet {
	l.domain, l.rule, l.limit = strings.Clone(l.domain), strings.Clone(l.rule), strings.Clone(l.limit)
	return l
}

// values returns the values of the labels with names.
func (l labelSet) values(names []string) []string {
	values := make([]string, len(names))
	for i, name := range names {
		switch name {
		case "domain":
			values[i] = l.domain
		case "rule":
			values[i] = l.rule
		case "limit":
			values[i] = l.limit
		case "enforced":
			values[i] = l.enforced
		case "result":
			values[i] = l.result
		}
	}
	return values
}

// A counterMap collects a counter for each label set. Unlike in a prometheus.CounterVec, a function
// can select the counters to delete, and a lookup does not allocate.
type counterMap struct {
	desc   *prometheus.Desc
	labels []string // the names of its labels

	mu     sync.RWMutex
	counts map[labelSet]*atomic.Uint64
}

func newCounterMap(registry prometheus.Registerer, name, help string, labels ...string) *counterMap {
	c := &counterMap{desc: prometheus.NewDesc(name, help, labels, nil), labels: labels, counts: map[labelSet]*atomic.Uint64{}}
	registry.MustRegister(c)
	return c
}

func (c *counterMap) add(labels labelSet, n uint64) {
	c.mu.RLock()
	count := c.counts[labels]
	c.mu.RUnlock()
	if count == nil {
		count = c.insert(labels)
	}
	count.Add(n)
}

func (c *counterMap) insert(labels labelSet) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if count := c.counts[labels]; count != nil {
		return count
	}
	count := &atomic.Uint64{}
	c.counts[labels.clone()] = count
	return count
}

// removeIf deletes the counters for which remove returns true.
func (c *counterMap) removeIf(remove func(labelSet) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.counts, func(labels labelSet, _ *atomic.Uint64) bool { return remove(labels) })
}

// Describe implements prometheus.Collector.
func (c *counterMap) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *counterMap) Collect(to chan<- prometheus.Metric) {
	c.mu.RLock()
	all := make([]prometheus.Metric, 0, len(c.counts))
	for labels, count := range c.counts {
		all = append(all, scrape.Metric(c.desc, prometheus.CounterValue, float64(count.Load()), labels.values(c.labels)...))
	}
	c.mu.RUnlock() // the receiver may be slow
	for _, m := range all {
		to <- m
	}
}
