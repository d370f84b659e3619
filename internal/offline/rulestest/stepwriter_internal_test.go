package rulestest

import (
	"fmt"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// A limit that grows no fuller is given up soon. A limit that fills over several windows is not.
func TestFillingEndsIfItCannotSucceed(t *testing.T) {
	for _, c := range []struct {
		limit  string
		fills  bool
		chunks int // at most
	}{
		{"{unit: minute, unit_multiplier: 2, requests_per_unit: 5}", false, 10},
		{"{algorithm: sliding_log, unit: minute, unit_multiplier: 2, requests_per_unit: 5}", false, 10},
		{"{algorithm: funnel, unit: minute, unit_multiplier: 2, requests_per_unit: 2, capacity: 5}", false, 10},
		{"{algorithm: funnel, unit: minute, unit_multiplier: 4, requests_per_unit: 3, capacity: 20}", true, 100},
		{"{algorithm: concurrency, concurrent_requests: 5, lease_ttl: 2m}", false, 10},
		{"{unit: hour, requests_per_unit: 50}", true, 50},
	} {
		rules, err := rulesfile.Parse(rulesfile.File{Name: "rules.yaml", Data: fmt.Appendf(nil, `
domain: d
descriptors:
  - key: lease
    rate_limits:
      - {unit: minute, requests_per_unit: 1}
      - %s
`, c.limit)})
		must.Succeed(t, err)
		g := &generator{rules: rules}
		for rule := range rules.All() {
			f := filling{chunk: 1, every: pace(rule, 1, 1)}
			fills := g.newStepWriter(rule, []descriptors.Entry{{Key: "lease", Value: "x"}}, defaultStart).try(&f, 1)
			if fills != c.fills || f.chunks > c.chunks {
				t.Errorf("%s: %v after %d requests, want %v after at most %d", c.limit, fills, f.chunks, c.fills, c.chunks)
			}
		}
	}
}
