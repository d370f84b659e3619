package differential

import (
	"sync"
	"testing"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weir-rls/weir/e2e/harness"
)

const metadataRules = `domain: meta
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 1000000}
    metadata: {tier: gold, nested: {x: 1, deep: {p: true}}, list: [1]}
  - key: b
    rate_limit: {unit: year, requests_per_unit: 1000000}
    metadata: {tier: silver, nested: {y: two, deep: {q: null}}, list: [2, 3]}
  - {key: zero, rate_limit: {unit: year, requests_per_unit: 0}, metadata: {over: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 0}, metadata: {shadow: true}}
  - {key: free, rate_limit: {unlimited: true}, metadata: {free: true}}
  - {key: plain, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: detailed, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 5}, metadata: {detailed: true}}
  - {key: bare, metadata: {bare: true}}
`

const (
	ofA   = `{"list":[1],"nested":{"deep":{"p":true},"x":1},"tier":"gold"}`
	ofAB  = `{"list":[1],"nested":{"deep":{"p":true,"q":null},"x":1,"y":"two"},"tier":"gold"}`
	ofBA  = `{"list":[2,3],"nested":{"deep":{"p":true,"q":null},"x":1,"y":"two"},"tier":"silver"}`
	never = "{}"
)

// The metadata of allowed descriptors is merged, and the first value wins. January's
// envoyproxy/ratelimit has no metadata, so only Weir is tested. Two bugs of July's must not exist
// here: one request's metadata in the next response, and no metadata with detailed_metric.
func TestMetadataIsMerged(t *testing.T) {
	weir := startWeir(t, []file{{"meta.yaml", metadataRules}}, "RESPONSE_DYNAMIC_METADATA=true")
	cases := []struct {
		ask  *request
		want string
	}{
		{ask("meta", desc("a", "1")), ofA},
		{ask("meta", desc("a", "1"), desc("b", "1")), ofAB},
		{ask("meta", desc("b", "1"), desc("a", "1")), ofBA},
		{ask("meta", desc("a", "1"), desc("a", "2")), ofA},
		{ask("meta", desc("zero", "1"), desc("a", "1")), ofA},
		{ask("meta", desc("zero", "1")), never},
		{ask("meta", desc("shadow", "1")), `{"shadow":true}`},
		{ask("meta", desc("free", "1"), desc("plain", "1"), desc("bare", "1"), desc("other", "1")), never},
		{ask("meta", desc("detailed", "1")), `{"detailed":true}`},
		{ask("meta", withLimit(desc("a", "1"), 5, typev3.RateLimitUnit_YEAR)), never},
		{ask("elsewhere", desc("a", "1")), never},
	}
	check := func() {
		for _, c := range cases {
			got := weir.ask(t.Context(), c.ask)
			if c.want == `{"detailed":true}` && got.brief() == "OVER_LIMIT: OVER_LIMIT 5/YEAR left 0" {
				continue // the rule allows five hits
			}
			m := got.response.GetDynamicMetadata().GetFields()["metadata"].GetStructValue()
			if text := canonical(m); text != c.want {
				t.Errorf("%v: metadata %s, want %s (%v)", c.ask, text, c.want, got)
			}
		}
	}
	check()
	// Concurrent requests must not change the metadata of the rules.
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				check()
			}
		})
	}
	all.Wait()
	check()
	harness.MustStop(t, weir.Process)
}
