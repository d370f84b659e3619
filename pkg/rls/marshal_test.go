package rls

import (
	"context"
	"math"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// modes returns rules in every mode, those of the tests of package decide.
func modes(t *testing.T) string {
	t.Helper()
	text := must.Read(t, "../decide/testdata/modes.yaml")
	return string(text)
}

// decideKeys sends one descriptor for each of keys. A key with a "!" has a limit in the request, of
// 0 a day.
func decideKeys(t *testing.T, s *Service, keys string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	got, err := s.ShouldRateLimit(context.Background(), request(t, keys))
	if err != nil {
		t.Fatalf("%s: %v", keys, err)
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
	must.Succeed(t, prototext.Unmarshal([]byte(text), &r))
	return &r
}

func serviceOf(t *testing.T, text string, o Options) *Service {
	t.Helper()
	return New(decide.New(parsed(t, text), newClocked(), decide.Options{}), o)
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
		r := decideKeys(t, serviceOf(t, modes(t), Options{Headers: Headers{"l", "r", "t"}}), keys)
		var got []string
		for _, h := range r.GetResponseHeadersToAdd() {
			got = append(got, h.GetKey()+"="+h.GetValue())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	if r := decideKeys(t, serviceOf(t, modes(t), Options{}), "free"); len(r.GetResponseHeadersToAdd()) != 0 {
		t.Error("headers without Options.Headers")
	}
}

// A descriptor that on_store_error denied has no known limit, so the headers show another one.
func TestResponseHeadersShowAKnownLimit(t *testing.T) {
	for keys, want := range map[string]string{
		"closed":            "",
		"once closed":       "l=1 r=0 t=3600",
		"closed twice once": "l=1 r=0 t=3600",
		"closed once once":  "l=1 r=0 t=3600",
	} {
		s, _ := serviceOn(t, denials, decide.Options{}, Options{Headers: Headers{"l", "r", "t"}})
		var got []string
		for _, h := range decideKeys(t, s, keys).GetResponseHeadersToAdd() {
			if len(h.GetKey()) == 1 {
				got = append(got, h.GetKey()+"="+h.GetValue())
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
}

const large = `domain: modes
descriptors:
- {key: window, rate_limit: {unit: hour, requests_per_unit: 4503599627370495}}
- {key: smaller, rate_limit: {unit: hour, requests_per_unit: 4294967297}}
- {key: fits, rate_limit: {unit: hour, requests_per_unit: 4294967295}}
`

// Numbers beyond 32 bits are saturated in the fields and headers of a response, and exact in its
// dynamic metadata.
func TestLargeNumbersAreSaturatedOnTheWire(t *testing.T) {
	s := serviceOf(t, large, Options{Headers: Headers{"l", "r", "t"}, DynamicMetadata: true})
	r := decideKeys(t, s, "window smaller fits")
	for i, want := range []struct{ limit, remaining uint32 }{
		{math.MaxUint32, math.MaxUint32}, {math.MaxUint32, math.MaxUint32}, {math.MaxUint32, math.MaxUint32 - 1},
	} {
		status := r.GetStatuses()[i]
		if got := status.GetCurrentLimit().GetRequestsPerUnit(); got != want.limit || status.GetLimitRemaining() != want.remaining {
			t.Errorf("status %d: %d of %d remain, want %d of %d", i, status.GetLimitRemaining(), got, want.remaining, want.limit)
		}
	}
	text, err := protojson.Marshal(r.GetDynamicMetadata())
	must.Succeed(t, err)
	want := `{"descriptors":[{"entries":["window=v"],"limitRemaining":4503599627370494,"requestsPerUnit":4503599627370495},` +
		`{"entries":["smaller=v"],"limitRemaining":4294967296,"requestsPerUnit":4294967297},{"entries":["fits=v"]}],"domain":"modes"}`
	if got := strings.NewReplacer(" ", "").Replace(string(text)); got != want {
		t.Errorf("dynamic metadata\n got %s\nwant %s", got, want)
	}
	for keys, want := range map[string]string{"window smaller": "l=4294967295 r=4294967295", "window fits": "l=4294967295 r=4294967293"} {
		var got []string
		for _, h := range decideKeys(t, s, keys).GetResponseHeadersToAdd()[:2] {
			got = append(got, h.GetKey()+"="+h.GetValue())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("headers of %s: %q, want %q", keys, got, want)
		}
	}
}

func TestDynamicMetadataMergesRuleMetadata(t *testing.T) {
	s := serviceOf(t, modes(t), Options{DynamicMetadata: true})
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
			metadata := decideKeys(t, s, keys).GetDynamicMetadata()
			delete(metadata.GetFields(), "denied_by")
			text, err := protojson.Marshal(metadata)
			must.Succeed(t, err)
			if got := strings.NewReplacer(" ", "").Replace(string(text)); got != want {
				t.Errorf("%s:\n got %s\nwant %s", keys, got, want)
			}
		}
	}
}

// Envoy's is_negative_hits is a refund of any size: with 0 hits it still ends a lease.
func TestNegativeHitsAreRefunds(t *testing.T) {
	const text = `domain: "d" hits_addend: 3
		descriptors {is_negative_hits: true} descriptors {is_negative_hits: true hits_addend {}}
		descriptors {is_negative_hits: true hits_addend {value: 2}} descriptors {hits_addend {}} descriptors {}`
	var r ratelimitv3.RateLimitRequest
	must.Succeed(t, prototext.Unmarshal([]byte(text), &r))
	var c exchange
	wire, err := proto.Marshal(&r)
	must.Succeed(t, err)
	must.Succeed(t, c.message.unmarshal(wire))
	must.Succeed(t, c.message.toRequest(&c.request))
	for i, want := range []decide.Descriptor{{Hits: -3, Refund: true}, {Refund: true}, {Hits: -2, Refund: true}, {}, {Hits: 3}} {
		if got := c.request.Descriptors[i]; got.Hits != want.Hits || got.Refund != want.Refund {
			t.Errorf("descriptors[%d]: %+v, want %+v", i, got, want)
		}
	}
}

// The headers show no descriptor that ended a lease.
func TestHeadersShowNoEndedLease(t *testing.T) {
	s := New(nil, Options{Headers: Headers{Limit: "L", Remaining: "M", Reset: "R"}})
	limit := func(remaining int64, kind decide.PlanKind) decide.Decision {
		return decide.Decision{
			Plan:     &decide.Plan{Kind: kind, Limits: []descriptors.RateLimit{{RequestsPerUnit: 10}}},
			Verdicts: []limiters.Verdict{{Allowed: true, Remaining: remaining}},
		}
	}
	shown := func(decisions ...decide.Decision) []*corev3.HeaderValue {
		var r ratelimitv3.RateLimitResponse
		must.Succeed(t, proto.Unmarshal(s.options.Headers.append(nil, decisions), &r))
		return r.GetResponseHeadersToAdd()
	}
	if got := shown(limit(1, decide.EndLease), limit(5, decide.Charge)); len(got) != 3 || got[1].GetValue() != "5" {
		t.Errorf("%v, want the limit with 5 remaining", got)
	}
	if got := shown(limit(1, decide.EndLease)); len(got) != 0 {
		t.Errorf("%v, want none", got)
	}
}
