package rls

import (
	"context"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// Rules in every mode. "full" denies the first hit, "free" allows a hundred.
const modes = `
domain: modes
descriptors:
  - {key: full, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unit: hour, requests_per_unit: 100, name: free}, metadata: {tier: gold, limits: {free: 100}}}
  - {key: shadowed, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: quota_full, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: quota_free, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 100}, metadata: {tier: silver, limits: {quota: 9, free: 1}}}
  - {key: unlimited, rate_limit: {unlimited: true}}
  - {key: named, rate_limit: {unit: hour, requests_per_unit: 0, name: small}}
  - {key: replacing, rate_limit: {unit: hour, requests_per_unit: 50, name: big, replaces: [{name: small}]}}
  - {key: replacing_replacing, rate_limit: {unit: hour, requests_per_unit: 10, replaces: [{name: big}]}}
  - {key: unlimited_replacing, rate_limit: {unlimited: true, name: all, replaces: [{name: small}, {name: big}]}}
`

// ask sends one descriptor for each of keys. A key with a "!" brings a limit of its own, of 0 a day.
func ask(t *testing.T, s *Service, keys string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	got, err := s.ShouldRateLimit(context.Background(), request(t, keys))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func request(t *testing.T, keys string) *ratelimitv3.RateLimitRequest {
	t.Helper()
	text := `domain: "modes" `
	for _, key := range strings.Fields(keys) {
		key, overridden := strings.CutSuffix(key, "!")
		text += `descriptors {entries {key: "` + key + `" value: "v"}`
		if overridden {
			text += ` limit {unit: DAY}`
		}
		text += "} "
	}
	var r ratelimitv3.RateLimitRequest
	if err := prototext.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func serviceOf(t *testing.T, text string, o Options) *Service {
	t.Helper()
	return New(decide.New(parsed(t, text), &clocked{Store: limiterstest.NewReference(), now: start}, decide.Options{}), o)
}

func TestResponseHeadersShowTightestLimit(t *testing.T) {
	for keys, want := range map[string]string{
		"unknown unlimited":         "",
		"free":                      "l=100 r=99 t=3600",
		"free replacing":            "l=50 r=49 t=3600",
		"full free":                 "l=0 r=0 t=3600",
		"free named full replacing": "l=0 r=0 t=3600",
		"quota_full free":           "l=0 r=0 t=3600",
		"replacing shadowed":        "l=0 r=0 t=3600",
	} {
		r := ask(t, serviceOf(t, modes, Options{Headers: Headers{"l", "r", "t"}}), keys)
		var got []string
		for _, h := range r.GetResponseHeadersToAdd() {
			got = append(got, h.GetKey()+"="+h.GetValue())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	if r := ask(t, serviceOf(t, modes, Options{}), "free"); len(r.GetResponseHeadersToAdd()) != 0 {
		t.Error("headers without Options.Headers")
	}
}

func TestDynamicMetadataMergesRuleMetadata(t *testing.T) {
	s := serviceOf(t, modes, Options{DynamicMetadata: true})
	for range 3 { // a merge must not change the rules
		for keys, want := range map[string]string{
			"free!": `{"descriptors":[{"entries":["free=v"],"limit":"unit:DAY"}],"domain":"modes"}`,
			"full":  `{"descriptors":[{"entries":["full=v"]}],"domain":"modes"}`,
			"free":  `{"descriptors":[{"entries":["free=v"]}],"domain":"modes","metadata":{"limits":{"free":100},"tier":"gold"}}`,
			"free quota_free": `{"descriptors":[{"entries":["free=v"]},{"entries":["quota_free=v"]}],"domain":"modes",` +
				`"metadata":{"limits":{"free":100,"quota":9},"tier":"gold"}}`,
			"quota_free free": `{"descriptors":[{"entries":["quota_free=v"]},{"entries":["free=v"]}],"domain":"modes",` +
				`"metadata":{"limits":{"free":1,"quota":9},"tier":"silver"}}`,
		} {
			text, err := protojson.Marshal(ask(t, s, keys).GetDynamicMetadata())
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.NewReplacer(" ", "").Replace(string(text)); got != want {
				t.Errorf("%s:\n got %s\nwant %s", keys, got, want)
			}
		}
	}
}
