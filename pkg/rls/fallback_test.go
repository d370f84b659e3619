package rls

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

var errGone = errors.New("the store is gone")

const lost = `
domain: modes
on_store_error: allow
descriptors:
  - {key: unsaid, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: denied, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: deny}}
  - {key: shadowed, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: deny}}
  - {key: failing, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: error}}
  - {key: local, rate_limit: {unit: hour, requests_per_unit: 5, on_store_error: local}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: mixed
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 3, on_store_error: local}
  - key: known
    rate_limits:
      - {unit: minute, requests_per_unit: 5}
      - {unit: hour, requests_per_unit: 30, on_store_error: local}
`

// What a response says of a hit that the store has not decided: no limit and no reset where nobody knows them.
func TestAnswersWithoutAStore(t *testing.T) {
	const (
		noLimit   = `statuses {code: OK}`
		overLimit = `overall_code: OVER_LIMIT statuses {code: OVER_LIMIT}`
	)
	for keys, want := range map[string]string{
		"unsaid": "overall_code: OK " + noLimit, "unsaid!": "overall_code: OK " + noLimit, "free!": "overall_code: OK " + noLimit,
		"nobody!": "overall_code: OK " + noLimit, "denied": overLimit, "denied!": overLimit, "shadowed": "overall_code: OK " + noLimit,
		"local": "overall_code: OK statuses {code: OK current_limit {requests_per_unit: 5 unit: HOUR} limit_remaining: 4 duration_until_reset {seconds: 3600}}",
		// The limit that a policy allows knows nothing, and the other tells.
		"mixed":         "overall_code: OK statuses {code: OK current_limit {requests_per_unit: 3 unit: HOUR} limit_remaining: 2 duration_until_reset {seconds: 3600}}",
		"known":         "overall_code: OK statuses {code: OK current_limit {requests_per_unit: 30 unit: HOUR} limit_remaining: 29 duration_until_reset {seconds: 3600}}",
		"unsaid denied": "overall_code: OVER_LIMIT statuses {code: OK} statuses {code: OVER_LIMIT}",
		// A denial stands, whatever else could not be decided.
		"failing denied": "overall_code: OVER_LIMIT statuses {} statuses {code: OVER_LIMIT}",
	} {
		s := serviceOf(t, lost, Options{Headers: Headers{"limit", "remaining", "reset"}})
		s.store = guard.NewFallback(&clocked{err: errGone}, guard.FallbackOptions{
			Local: &clocked{Store: limiterstest.NewReference(), now: start},
		})
		got := ask(t, s, keys)
		got.ResponseHeadersToAdd = nil
		var wanted ratelimitv3.RateLimitResponse
		if err := prototext.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, &wanted) {
			t.Errorf("%s\ngot  %v\nwant %v", keys, got, &wanted)
		}
	}
	s := serviceOf(t, lost, Options{})
	s.store = guard.NewFallback(&clocked{err: errGone}, guard.FallbackOptions{})
	var r ratelimitv3.RateLimitRequest
	for _, key := range []string{"failing", "local"} {
		if err := prototext.Unmarshal([]byte(`domain: "modes" descriptors {entries {key: "`+key+`" value: "v"}}`), &r); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ShouldRateLimit(t.Context(), &r); err == nil {
			t.Errorf("%s is answered", key)
		}
	}
}

func TestADecisionTellsWhoMadeIt(t *testing.T) {
	s := serviceOf(t, lost, Options{})
	var by []limiters.Source
	s.options.Observe = func(a *Answer) {
		for _, d := range a.Decisions {
			by = append(by, d.Verdict.By)
		}
	}
	s.store = guard.NewFallback(&clocked{err: errGone}, guard.FallbackOptions{Local: limiterstest.NewReference()})
	ask(t, s, "local denied")
	if len(by) != 2 || by[0] != limiters.ByShare || by[1] != limiters.ByPolicy {
		t.Errorf("got %v", by)
	}
}
