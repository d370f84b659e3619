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

// A labelSet holds the label values of a counter in the order of its labels, such as domain,
// rule, limit and enforced. The first two identify the rule. Values beyond its labels are empty.
type labelSet [4]string

func (l labelSet) ruleID() descriptors.RuleID {
	return descriptors.RuleID{Domain: l[0], Name: l[1]}
}

// A counterMap collects a counter for each label set. Unlike in a prometheus.CounterVec, a function
// can select the counters to delete, and a lookup does not allocate.
type counterMap struct {
	desc   *prometheus.Desc
	labels int // their number

	mu     sync.RWMutex
	counts map[labelSet]*atomic.Uint64
}

func newCounterMap(registry prometheus.Registerer, name, help string, labels ...string) *counterMap {
	c := &counterMap{desc: prometheus.NewDesc(name, help, labels, nil), labels: len(labels), counts: map[labelSet]*atomic.Uint64{}}
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
	for i := range labels { // replaced rules must not stay in memory
		labels[i] = strings.Clone(labels[i])
	}
	c.counts[labels] = count
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
		all = append(all, scrape.Metric(c.desc, prometheus.CounterValue, float64(count.Load()), labels[:c.labels]...))
	}
	c.mu.RUnlock() // the receiver may be slow
	for _, m := range all {
		to <- m
	}
}
