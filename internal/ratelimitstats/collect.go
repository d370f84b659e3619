package ratelimitstats

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/internal/scrape"
)

// collectSeries drops idle series and collects the others, without rare counters that are 0. The
// labels end with the last part of the name. Prometheus treats an absent label as empty, so the
// output equals that of envoyproxy/ratelimit.
func (s *Stats) collectSeries(to chan<- prometheus.Metric) {
	collect := func(desc *prometheus.Desc, n uint64, labels []string) {
		to <- scrape.Metric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	s.byDescriptor.sweep()
	s.unknownDomains.sweep()
	descs := map[int]*[numCounters]*prometheus.Desc{}
	for _, one := range s.byDescriptor.all() {
		depth := len(one.labels) - 1
		if descs[depth] == nil {
			descs[depth] = descsOf(depth)
		}
		for i, n := range one.load() {
			if n > 0 || i < overLimitWithLocalCache {
				collect(descs[depth][i], n, one.labels)
			}
		}
	}
	unknown := prometheus.NewDesc("ratelimit_service_rate_limit_domain_not_found",
		"Number of requests for a domain without rules. At most 100 domains have their own series.", []string{"domain"}, nil)
	for _, one := range s.unknownDomains.all() {
		collect(unknown, one.counts[totalHits].Load(), one.labels)
	}
}

func descsOf(depth int) *[numCounters]*prometheus.Desc {
	labels := []string{"domain"}
	for i := range depth {
		labels = append(labels, "key"+strconv.Itoa(i+1))
	}
	descs := &[numCounters]*prometheus.Desc{}
	for i, name := range counterNames {
		descs[i] = prometheus.NewDesc("ratelimit_service_rate_limit_"+name, counterHelp[i], labels, nil)
	}
	return descs
}

// Counters calls send for each counter with its statsd name, its total, and the part of the total
// sent before, which send updates. It is not safe for concurrent use.
func (s *Stats) Counters(send func(name string, total uint64, sent *uint64)) {
	for _, c := range s.scalars {
		send(c.statsd, c.n.Load(), &c.sent)
	}
	s.methods.each(func(m *method) { send(m.calls.statsd, m.calls.n.Load(), &m.calls.sent) })
	s.byDescriptor.sendCounters(counterNames[:], send)
	s.unknownDomains.sendCounters([]string{"domain_not_found"}, send)
}

// sendCounters sends the counters of a table; names[i] is the name of counts[i].
func (t *table) sendCounters(names []string, send func(name string, total uint64, sent *uint64)) {
	t.sweep()
	retired := t.takeRetired()
	for i, s := range append(retired, t.all()...) {
		if s.statsd == "" {
			// Two clean parts may form an IPv4 address when they are joined.
			s.statsd = "ratelimit.service.rate_limit." + string(appendClean(nil, strings.Join(s.labels, ".")))
		}
		counts, unsent := s.load(), false
		for j, name := range names {
			send(s.statsd+"."+name, counts[j], &s.sent[j])
			unsent = unsent || s.sent[j] != counts[j]
		}
		if unsent && i < len(retired) {
			t.retire(s)
		}
	}
}

// ResponseTimes calls send for each gRPC method with the number of calls since the last time and a
// uniform sample of their response times. It is not safe for concurrent use.
func (s *Stats) ResponseTimes(send func(name string, calls int, sample []time.Duration)) {
	s.methods.each(func(m *method) {
		calls, sample := m.times.take()
		send("ratelimit_server."+m.name+".response_time", calls, sample)
	})
}
