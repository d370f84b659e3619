package ratelimitstats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/scrape"
)

// measured returns the metrics of a name, by their only label.
func measured(t *testing.T, m *fixture, name string) map[string]measure {
	t.Helper()
	families, err := m.Registry.Gather()
	must.Succeed(t, err)
	all := map[string]measure{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, one := range f.GetMetric() {
			h := one.GetHistogram()
			got := measure{float64(h.GetSampleCount()) + one.GetCounter().GetValue(), h.GetSampleSum(), map[float64]uint64{}}
			for _, b := range h.GetBucket() {
				got.buckets[b.GetUpperBound()] = b.GetCumulativeCount()
			}
			all[one.GetLabel()[0].GetName()+"="+one.GetLabel()[0].GetValue()] = got
		}
	}
	return all
}

type measure struct {
	count, sum float64
	buckets    map[float64]uint64
}

func TestCallsAreCountedByMethod(t *testing.T) {
	m := newStats(Options{})
	failed := errors.New("failed")
	for _, method := range []string{
		"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", "/grpc.health.v1.Health/Check",
	} {
		for range 3 {
			response, err := m.Unary(t.Context(), 1, &grpc.UnaryServerInfo{FullMethod: method},
				func(_ context.Context, request any) (any, error) { return request, failed })
			if response != 1 || !errors.Is(err, failed) {
				t.Fatalf("got response %v, error %v, want 1, %v", response, err, failed)
			}
		}
	}
	for _, name := range []string{"ratelimit_service_total_requests", "ratelimit_service_response_time_seconds"} {
		all := measured(t, m, name)
		if len(all) != 2 || all["grpc_method=Check"].count != 3 || all["grpc_method=ShouldRateLimit"].count != 3 {
			t.Errorf("%s: %v, want 3 calls of each method", name, all)
		}
	}
}

const shouldRateLimit = "grpc_method=ShouldRateLimit"

func TestResponseTimesAreSeconds(t *testing.T) {
	for milliseconds, want := range map[bool]float64{false: .25, true: 250} {
		m := newStats(Options{Milliseconds: milliseconds})
		m.methods.count(m.methods.methodOf("/s/ShouldRateLimit"), 250*time.Millisecond)
		h := measured(t, m, "ratelimit_service_response_time_seconds")[shouldRateLimit]
		if h.sum != want || len(h.buckets) < 16 {
			t.Errorf("%v, want %v", h, want)
		}
		for bound, n := range h.buckets {
			if holds := n == 1; holds != (bound >= want) {
				t.Errorf("the bucket up to %v has %d of %v", bound, n, want)
			}
		}
	}
}

// Dashboards for envoyproxy/ratelimit name its buckets, which are the defaults of client_golang.
func TestBucketsOfEnvoyRatelimitExist(t *testing.T) {
	m := newStats(Options{})
	have := measured(t, m, "ratelimit_service_response_time_seconds")[shouldRateLimit].buckets
	for _, want := range []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, .0001, .001} {
		if _, found := have[want]; !found {
			t.Errorf("no bucket %v", want)
		}
	}
}

func TestCountingACallAllocatesNothing(t *testing.T) {
	m := newStats(Options{})
	n := testing.AllocsPerRun(100, func() { m.methods.count(m.methods.methodOf("/s/ShouldRateLimit"), time.Millisecond) })
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
	if n := testutil.CollectAndCount(scrape.CollectFunc(m.methods.collect)); n != 1 {
		t.Errorf("%d methods, want 1", n)
	}
}

// Of more response times than maxTimes, a uniform sample is kept.
func TestResponseTimesAreSampledUniformly(t *testing.T) {
	var s sample
	const n = 20 * maxTimes
	for i := range n {
		s.add(time.Duration(i))
	}
	seen, times := s.take()
	if seen != n || len(times) != maxTimes {
		t.Fatalf("%d of %d", len(times), seen)
	}
	sum := time.Duration(0)
	for _, took := range times {
		sum += took
	}
	if mean := sum / maxTimes; mean < n*2/5 || mean > n*3/5 {
		t.Errorf("the mean is %d of %d", mean, n)
	}
	if seen, times := s.take(); seen != 0 || len(times) != 0 {
		t.Errorf("%d of %d after all were taken", len(times), seen)
	}
}
