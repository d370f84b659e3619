package rls

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// Rules of every mode. "full" denies from the first hit on, "free" denies nothing for long.
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

// asking for several descriptors of one key each, and an override of it behind a "!".
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
	return New(parsed(t, text), &clocked{Store: limiterstest.NewReference(), now: start}, o)
}

// A response in short: the overall code, and each status as ok or over, with the limit and what is left of it.
func short(r *ratelimitv3.RateLimitResponse) string {
	names := map[ratelimitv3.RateLimitResponse_Code]string{codeOK: "ok", codeOverLimit: "over", codeUnknown: "unknown"}
	text := names[r.GetOverallCode()] + ":"
	for _, s := range r.GetStatuses() {
		text += " " + names[s.GetCode()]
		if l := s.GetCurrentLimit(); l != nil {
			text += prototextNumber(s.GetLimitRemaining()) + "/" + prototextNumber(l.GetRequestsPerUnit()) + l.GetName()
		} else if s.GetLimitRemaining() != 0 {
			text += "(" + prototextNumber(s.GetLimitRemaining()) + ")"
		}
	}
	return text
}

func prototextNumber(n uint32) string {
	return strings.TrimSpace(strings.TrimPrefix(prototext.MarshalOptions{}.Format(&ratelimitv3.RateLimitRequest{HitsAddend: n}), "hits_addend:"))
}

func TestModes(t *testing.T) {
	for _, c := range []struct {
		options    Options
		keys, want string
	}{
		{Options{}, "full", "over: over/"},
		{Options{}, "free unknown", "ok: ok99/100free ok"},
		// Shadow: told as OK, counted all the same.
		{Options{}, "shadowed", "ok: ok/"},
		{Options{}, "shadowed full", "over: ok/ over/"},
		{Options{ShadowMode: true}, "full free", "ok: over/ ok99/100free"},
		// Quota: denied only if all that are in quota mode are over.
		{Options{}, "quota_full", "over: over/"},
		{Options{}, "quota_full quota_free", "ok: over/ ok99/100"},
		{Options{}, "quota_full free", "over: over/ ok99/100free"},
		{Options{}, "quota_full quota_free full", "over: over/ ok99/100 over/"},
		{Options{QuotaMode: true}, "full free", "ok: over/ ok99/100free"},
		{Options{QuotaMode: true}, "full quota_full", "over: over/ over/"},
		{Options{QuotaMode: true}, "full unknown", "ok: over/ ok"},
		{Options{QuotaMode: true}, "full unlimited", "over: over/ ok(4294967295)"},
		// Unlimited: no limit is told, and all that can be told is left.
		{Options{}, "unlimited", "ok: ok(4294967295)"},
		{Options{}, "unlimited full", "over: ok(4294967295) over/"},
		// Replaces: by name, whether or not what replaces is replaced itself; unlimited replaces and is not replaced.
		{Options{}, "named", "over: over/small"},
		{Options{}, "named replacing", "ok: ok ok49/50big"},
		{Options{}, "named replacing replacing_replacing", "ok: ok ok ok9/10"},
		{Options{}, "named unlimited_replacing", "ok: ok ok(4294967295)"},
		// An override has no name and no mode.
		{Options{}, "shadowed!", "over: over/"},
		{Options{}, "quota_full! quota_free", "over: over/ ok99/100"},
		{Options{}, "named! replacing", "over: over/ ok49/50big"},
		{Options{}, "unlimited!", "over: over/"},
	} {
		if got := short(ask(t, serviceOf(t, modes, c.options), c.keys)); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}

func TestAllOrNothingChargesNothingOfARequestThatIsDenied(t *testing.T) {
	for allOrNothing, want := range map[bool]string{false: "over: ok98/100free over/", true: "over: ok100/100free over/"} {
		s := serviceOf(t, modes, Options{AllOrNothing: allOrNothing})
		ask(t, s, "free full")
		if got := short(ask(t, s, "free full")); got != want {
			t.Errorf("%v: %s, want %s", allOrNothing, got, want)
		}
	}
}

// A rule that denies no request must not keep the others from being charged: for as long as it was over, nothing would be limited.
func TestAllOrNothingIsOfWhatCanDenyTheRequest(t *testing.T) {
	for _, c := range []struct {
		options    Options
		keys, want string // what the second is told
	}{
		{Options{}, "free shadowed", "ok: ok98/100free ok/"},
		{Options{}, "quota_full quota_free free", "ok: over/ ok98/100 ok98/100free"},
		{Options{}, "quota_free full free", "over: ok100/100 over/ ok100/100free"},
		{Options{}, "quota_full free", "over: over/ ok100/100free"},
		{Options{}, "quota_full quota_free full free", "over: over/ ok98/100 over/ ok100/100free"},
		{Options{ShadowMode: true}, "full free", "ok: over/ ok98/100free"},
		{Options{QuotaMode: true}, "full free", "ok: over/ ok98/100free"},
	} {
		c.options.AllOrNothing = true
		s := serviceOf(t, modes, c.options)
		ask(t, s, c.keys)
		if got := short(ask(t, s, c.keys)); got != c.want {
			t.Errorf("%+v %s:\n got %s\nwant %s", c.options, c.keys, got, c.want)
		}
	}
}

// partial is a store that cannot decide hits whose keys have a text in them.
type partial struct {
	limiters.Store
	fails string
}

func (p partial) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	err := p.Store.Take(ctx, now, groups, out)
	for i, h := range slices.Concat(groups...) {
		if strings.Contains(h.Key, p.fails) {
			out[i] = limiters.Verdict{Err: errors.New("a full store")}
		}
	}
	return err
}

// A rule on trial, in shadow mode, fails no request.
func TestWhatIsInShadowFailsNoRequest(t *testing.T) {
	for _, c := range []struct {
		options           Options
		fails, keys, want string
	}{
		{Options{}, "shadowed", "free shadowed", "ok: ok99/100free ok"},
		{Options{}, "shadowed", "full shadowed", "over: over/ ok"},
		{Options{}, "shadowed", "shadowed", "ok: ok"},
		{Options{}, "free", "free shadowed", "Unavailable"},
		{Options{}, "free", "full free", "over: over/ unknown"},
		{Options{ShadowMode: true}, "free", "free", "ok: unknown"},
	} {
		var told []error
		c.options.Observe = func(a *Answer) { told = append(told, a.Err) }
		s := New(parsed(t, modes), partial{&clocked{Store: limiterstest.NewReference(), now: start}, c.fails}, c.options)
		got, err := s.ShouldRateLimit(context.Background(), request(t, c.keys))
		said := "Unavailable"
		if status.Code(err) != codes.Unavailable {
			said = short(got)
		}
		if said != c.want || len(told) != 1 || told[0] == nil {
			t.Errorf("%+v %s: %s %v, want %s, and that the error is observed", c.options, c.keys, said, told, c.want)
		}
	}
}

func TestResponseHeaders(t *testing.T) {
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
		t.Error("headers that nobody asked for")
	}
}

func TestDynamicMetadata(t *testing.T) {
	s := serviceOf(t, modes, Options{DynamicMetadata: true})
	for range 3 { // a merge must not change what the rules hold
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

func TestJSON(t *testing.T) {
	s := serviceOf(t, modes, Options{})
	for _, c := range []struct {
		body     string
		code     int
		contains string
	}{
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"free","value":"v"}]}]}`, 200, `"requestsPerUnit":100`},
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"full","value":"v"}]}]}`, 429, `"overallCode":"OVER_LIMIT"`},
		{`{"domain":"modes","descriptors":[{"entries":[{"key":"free"}], "hits_addend": "3"}]}`, 200, `"limitRemaining":97`},
		{`{"domain":"modes","nonsense":1}`, 400, "BadRequest"},
		{`{"domain":""}`, 400, "BadRequest"},
		{`{"domain":"` + strings.Repeat("x", MaxBody) + `"}`, 400, "BadRequest"},
		{``, 400, "BadRequest"},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(c.body)))
		body, _ := io.ReadAll(w.Result().Body)
		if got := strings.ReplaceAll(string(body), " ", ""); w.Code != c.code || !strings.Contains(got, c.contains) {
			t.Errorf("%.80s: %d %s, want %d %s", c.body, w.Code, got, c.code, c.contains)
		}
	}
	missing := New(func() *descriptors.Rules { return nil }, limiterstest.NewReference(), Options{})
	w := httptest.NewRecorder()
	missing.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(`{"domain":"a","descriptors":[{}]}`)))
	if w.Code != 503 {
		t.Errorf("without rules: %d, want 503", w.Code)
	}
}
