package ratelimitstats

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

type fixture struct {
	*Stats
	Registry *prometheus.Registry
}

// newStats returns Stats with a registry of their own. The default near limit ratio is 0.8.
func newStats(o Options) *fixture {
	if o.NearLimitRatio == 0 {
		o.NearLimitRatio = .8
	}
	registry := prometheus.NewRegistry()
	return &fixture{New(registry, o), registry}
}

var loaded = rulesfiletest.Parse

var tenADay = descriptors.RateLimit{
	Unit: descriptors.Day, UnitMultiplier: 1, RequestsPerUnit: 10,
	Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: 24 * time.Hour, CountDenied: true}),
}

func entriesOf(texts ...string) []descriptors.Entry {
	var entries []descriptors.Entry
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		entries = append(entries, descriptors.Entry{Key: key, Value: value})
	}
	return entries
}

// hit returns an answer to one descriptor: one allowed hit under the rule that matches it, or under
// a limit in the request.
func hit(rules *descriptors.Rules, domain string, texts ...string) *rls.Observation {
	d := decide.Decision{Plan: &decide.Plan{Domain: domain, Entries: entriesOf(texts...), Hits: 1, Limits: []descriptors.RateLimit{tenADay}}, Verdicts: []limiters.Verdict{{Allowed: true, Used: 1}}}
	d.Rule = rules.Match(domain, d.Entries)
	d.HasOverride = d.Rule == nil
	return &rls.Observation{Result: decide.Result{Decisions: []decide.Decision{d}}}
}

// total returns the total_hits of the series with these labels, -1 if there is none.
func total(m *fixture, labels ...string) int {
	for _, s := range m.byDescriptor.all() {
		if strings.Join(s.labels, "\n") == strings.Join(labels, "\n") {
			return int(s.counts[totalHits].Load())
		}
	}
	return -1
}

// The id of a lease names one request, so it is in no name. The end of a lease is not a hit.
func TestLeasesCountWithoutTheirIDs(t *testing.T) {
	b := descriptors.NewBuilder()
	slots := limiterstest.MustLimit(limiters.Spec{Algorithm: "concurrency", Max: 2})
	for _, key := range []string{"user", "detailed"} {
		user := b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: key}})
		user.Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "lease"}}).SetRule(descriptors.Rule{
			Limits: []descriptors.RateLimit{{Limit: slots, RequestsPerUnit: 2}}, DetailedMetric: key == "detailed",
		})
	}
	rules := b.Build()
	m := newStats(Options{})
	m.Loaded(rules, nil)
	for _, key := range []string{"user", "detailed"} {
		for _, override := range []bool{false, true} {
			o := hit(rules, "d", key+"=alice", "lease=id-of-one-request")
			o.Decisions[0].HasOverride = override
			m.Observe(o)
			o.Decisions[0].Kind = decide.EndLease
			m.Observe(o)
		}
	}
	for name, want := range map[string]int{"user": 1, "user_alice": 1, "detailed_alice": 2} {
		if got := total(m, "d", name, "lease"); got != want {
			t.Errorf("%d hits under %s and lease, want %d", got, name, want)
		}
	}
}
