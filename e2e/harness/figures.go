package harness

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A Metrics holds the values of all series of a Weir, by name and labels as in /metrics.
type Metrics map[string]float64

// GetMetrics returns the metrics of the Weir whose [Weir.HTTP] is url.
func GetMetrics(ctx context.Context, url string) (Metrics, error) {
	text, err := Get(ctx, url+"/metrics")
	if err != nil {
		return nil, err
	}
	all := Metrics{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil && line[0] != '#' {
			all[line[:at]] = value
		}
	}
	return all, nil
}

// MustMetrics is [GetMetrics] for a test.
func MustMetrics(t testing.TB, url string) Metrics {
	t.Helper()
	all, err := GetMetrics(t.Context(), url)
	must.Succeed(t, err)
	return all
}

// Sum returns the sum of a metric over its labels.
func (m Metrics) Sum(name string) (sum float64) {
	for series, value := range m {
		if strings.HasPrefix(series, name+"{") {
			sum += value
		}
	}
	return sum
}

// Stat returns one of Envoy's counters or gauges, or 0 before it exists.
func (e *Envoy) Stat(ctx context.Context, name string) (int, error) {
	text, err := Get(ctx, e.Admin+"/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if _, value, found := strings.Cut(text, ": "); err == nil && found {
		return strconv.Atoi(strings.TrimSpace(value))
	}
	return 0, err
}

// MustStat is [Envoy.Stat] for a test.
func (e *Envoy) MustStat(t testing.TB, name string) int {
	t.Helper()
	n, err := e.Stat(t.Context(), name)
	must.Succeed(t, err)
	return n
}
