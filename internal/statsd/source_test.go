package statsd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/ratelimitstats"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

// A fixture is a source of counters with a registry for the sender's own metrics.
type fixture struct {
	*ratelimitstats.Stats
	registry *prometheus.Registry
}

func newFixture() *fixture {
	registry := prometheus.NewRegistry()
	return &fixture{ratelimitstats.New(registry, ratelimitstats.Options{NearLimitRatio: .8, Statsd: true}), registry}
}

// hit counts one allowed hit under a limit in the request.
func (f *fixture) hit(domain string, texts ...string) { f.Observe(answerOf(domain, texts...)) }

func answerOf(domain string, texts ...string) *rls.Observation {
	d := decide.Decision{Plan: &decide.Plan{Domain: domain, Hits: 1, HasOverride: true, Limits: []descriptors.RateLimit{tenADay}}, Verdicts: []limiters.Verdict{{Allowed: true, Used: 1}}}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
	}
	return &rls.Observation{Result: decide.Result{Decisions: []decide.Decision{d}}}
}

// call counts a gRPC call that takes at least the given time.
func (f *fixture) call(took time.Duration) {
	_, _ = f.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/s/ShouldRateLimit"},
		func(context.Context, any) (any, error) { time.Sleep(took); return nil, nil })
}

var tenADay = descriptors.RateLimit{
	Unit: descriptors.Day, UnitMultiplier: 1, RequestsPerUnit: 10,
	Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 10, Window: 24 * time.Hour, CountDenied: true}),
}

// The counters of envoyproxy/ratelimit arrive under its names, on both networks.
func TestStatsdReceivesCountersAndTimes(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			l := newListener()
			address := ""
			if network == "udp" {
				address = listenUDP(t, l)
			} else {
				address, _ = listenTCP(t, "127.0.0.1:0", l)
			}
			m := newFixture()
			s, stop := sending(t, m, Destination{Network: network, Address: address,
				Tags: map[string]string{"zone": "a.b:c", "env": "prod", "none": ""}}, zap.NewNop())
			const tags = ".__env=prod.__zone=a_b_c"
			const rate = "ratelimit.service.rate_limit.d.user_10_0_0_1.post."
			total := rate + "total_hits" + tags
			for range 5 {
				m.hit("d", "user=10.0.0.1", "post=")
				m.call(0)
			}
			l.await(t, "five hits", func() bool { return l.sum(total) == 5 })
			m.hit("d", "user=10.0.0.1", "post=")
			m.Loaded(nil, nil) // drops the series; its last hit must arrive
			m.Loaded(nil, errors.New("a bad file"))
			lost := answerOf("d", "user=lost")
			lost.Code, lost.StoreErr = codes.Unavailable, errors.New("broken")
			m.Observe(lost)
			m.Observe(&rls.Observation{Result: decide.Result{PlannedRequest: decide.PlannedRequest{UnknownDomain: true, Domain: "unknown"}}})
			stop()
			l.all(t, s)
			for name, want := range map[string]int{
				total:                        6,
				rate + "within_limit" + tags: 6,
				"ratelimit.service.config_load_success" + tags:                  1,
				"ratelimit.service.config_load_error" + tags:                    1,
				"ratelimit.service.rate_limit.unknown.domain_not_found" + tags:  1,
				"ratelimit.service.call.should_rate_limit.redis_error" + tags:   1,
				"ratelimit.service.call.should_rate_limit.service_error" + tags: 0,
				"ratelimit_server.ShouldRateLimit.total_requests" + tags:        5,
				"ratelimit_server.ShouldRateLimit.response_time" + tags:         5,
			} {
				if got := l.sum(name); got != want {
					t.Errorf("%s: %d, want %d", name, got, want)
				}
			}
			for _, line := range l.lines {
				if strings.Contains(line, ":0|c") || strings.Contains(line, "over_limit") {
					t.Errorf("a line without an increment: %s", line)
				}
			}
		})
	}
}

func TestDogstatsdReceivesTags(t *testing.T) {
	l := newListener()
	env := map[string]string{
		"DOG_STATSD_MOGRIFIER_A_PATTERN": `^ratelimit\.service\.rate_limit\.([^.]+)\.(.+)\.([^.]+)$`,
		"DOG_STATSD_MOGRIFIER_A_NAME":    "ratelimit.service.rate_limit.$3",
		"DOG_STATSD_MOGRIFIER_A_TAGS":    "domain:$1,descriptor:$2",
		"DOG_STATSD_MOGRIFIER_B_PATTERN": `^ratelimit(.*)$`,
		"DOG_STATSD_MOGRIFIER_B_NAME":    "custom$1",
		"DD_ENV":                         "prod",
	}
	getenv := func(name string) string { return env[name] }
	mogrifiers, err := Mogrifiers("a, B", getenv)
	must.Succeed(t, err)
	m := newFixture()
	s, stop := sending(t, m, Destination{Network: "udp", Address: listenUDP(t, l), Dog: true, DogTags: DogTags(getenv),
		Tags: map[string]string{"DEPLOY": "67890"}, Mogrifiers: mogrifiers}, zap.NewNop())
	m.hit("d", "user=x,evil:tag")
	m.call(0)
	l.await(t, "a hit", func() bool { return l.sum("ratelimit.service.rate_limit.within_limit") == 1 })
	stop()
	l.all(t, s)
	for _, want := range []string{
		"ratelimit.service.rate_limit.total_hits:1|c|#env:prod,DEPLOY:67890,domain:d,descriptor:user_x_evil_tag",
		"custom_server.ShouldRateLimit.total_requests:1|c|#env:prod,DEPLOY:67890",
	} {
		if !l.received(want) {
			t.Errorf("no %s in\n%s", want, strings.Join(l.lines, "\n"))
		}
	}
	if n := l.sum("custom_server.ShouldRateLimit.response_time"); n != 1 {
		t.Errorf("%d response times, want 1", n)
	}
}

// A fake is a source whose counters a test sets.
type fake struct {
	names []string
	total uint64
	sent  []uint64
	calls int
	times []time.Duration
}

// newFake returns a source of n counters with names as long as those of Envoy Gateway's routes.
func newFake(n int) *fake {
	f := &fake{sent: make([]uint64, n)}
	for i := range n {
		route := "httproute/team-" + strings.Repeat("a", 58) + "/checkout-" + strings.Repeat("b", 160) + "/rule/0/match/0/shop.example.com"
		f.names = append(f.names, "ratelimit.service.rate_limit.default/eg/http."+route+"."+
			"match_"+strconv.Itoa(i)+".total_hits")
	}
	return f
}

func (f *fake) Counters(send func(string, uint64, *uint64)) {
	for i, name := range f.names {
		send(name, f.total, &f.sent[i])
	}
}

func (f *fake) ResponseTimes(send func(string, int, []time.Duration)) {
	send("response_time", f.calls, slices.Clone(f.times))
	f.calls, f.times = 0, nil
}
