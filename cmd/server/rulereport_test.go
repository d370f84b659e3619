package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A store remembers the end of a lease for 5 s. A take that comes later than that would hold its slot until its TTL.
func TestLongStoreTimeoutWithLeasesIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		spec    limiters.Spec
		want    int
	}{
		"leases":                 {6 * time.Second, limiters.Spec{Algorithm: "concurrency", Max: 1}, 1},
		"reservations":           {6 * time.Second, limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Minute}}}, 1},
		"a timeout of 5s":        {5 * time.Second, limiters.Spec{Algorithm: "concurrency", Max: 1}, 0},
		"no leases in the rules": {6 * time.Second, limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := limiters.New(c.spec)
			if err != nil {
				t.Fatal(err)
			}
			b := descriptors.NewBuilder()
			b.Domain("d").Add(descriptors.Level{Entry: descriptors.Entry{Key: "lease"}}).SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{{Compiled: limit}}})
			rules := b.Build()
			var log bytes.Buffer
			s := &settings.Serve{}
			s.StoreTimeout = c.timeout
			metrics := telemetry.NewMetrics("test")
			stats := ratelimitstats.New(metrics.Registry, ratelimitstats.Options{})
			report := newRuleReport(s, telemetry.NewLog(zapcore.AddSync(&log), zapcore.InfoLevel, "json"), metrics, stats, func() {})
			report.loaded(nil, rules, nil)
			report.loaded(rules, rules, nil)
			if got := strings.Count(log.String(), "store timeout too long for leases"); got != c.want {
				t.Errorf("logged %d times, want %d", got, c.want)
			}
		})
	}
}
