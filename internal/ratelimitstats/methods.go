package ratelimitstats

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/scrape"
)

// methods counts gRPC calls by method. Their number is bounded, because only methods with a handler
// are counted.
type methods struct {
	took            *prometheus.HistogramVec
	unit            time.Duration // the unit of the observed times
	sending         bool          // response times are sampled for statsd
	byName          sync.Map      // string -> *method; equal names in two services share one
	shouldRateLimit *method
}

type method struct {
	name  string
	calls scalar
	took  prometheus.Observer
	times sample
}

// responseSeconds holds the buckets of envoyproxy/ratelimit, from 5 ms, and smaller ones for usual
// response times.
var responseSeconds = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
}

func newMethods(o Options) *methods {
	unit, buckets := time.Second, responseSeconds
	if o.Milliseconds {
		unit, buckets = time.Millisecond, make([]float64, len(responseSeconds))
		for i, s := range responseSeconds {
			buckets[i] = s * 1000
		}
	}
	m := &methods{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ratelimit_service_response_time_seconds", Buckets: buckets,
			Help: "Duration of gRPC calls in seconds, or in milliseconds if PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS is true.",
		}, []string{"grpc_method"}),
		unit: unit, sending: o.Statsd,
	}
	m.shouldRateLimit = m.methodOf("ShouldRateLimit") // exists before the first call
	return m
}

// Unary is a gRPC interceptor that counts calls and measures their durations. It should be
// outermost. Calls that [Stats.Observe] counts must not pass it.
func (s *Stats) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	start := time.Now()
	response, err := handle(ctx, request)
	s.methods.count(s.methods.methodOf(info.FullMethod), time.Since(start))
	return response, err
}

func (m *methods) count(method *method, took time.Duration) {
	method.calls.n.Add(1)
	method.took.Observe(float64(took) / float64(m.unit))
	if m.sending {
		method.times.add(took)
	}
}

func (m *methods) methodOf(full string) *method {
	name := full[strings.LastIndexByte(full, '/')+1:]
	if found, ok := m.byName.Load(name); ok {
		return found.(*method)
	}
	made := &method{
		name: name, took: m.took.WithLabelValues(name),
		calls: scalar{statsd: "ratelimit_server." + name + ".total_requests"},
	}
	found, _ := m.byName.LoadOrStore(name, made)
	return found.(*method)
}

var totalRequests = prometheus.NewDesc("ratelimit_service_total_requests", "Number of unary calls of the gRPC server by method, without those that Weir sheds.", []string{"grpc_method"}, nil)

// collect collects the numbers of calls. The durations are a collector of their own.
func (m *methods) collect(to chan<- prometheus.Metric) {
	m.each(func(method *method) {
		to <- scrape.Metric(totalRequests, prometheus.CounterValue, float64(method.calls.n.Load()), method.name)
	})
}

func (m *methods) each(do func(*method)) {
	m.byName.Range(func(_, found any) bool { do(found.(*method)); return true })
}

// A sample is a uniform sample of the response times since the last take, all of them up to
// maxTimes (reservoir sampling).
type sample struct {
	mu    sync.Mutex
	calls int
	times []time.Duration
}

// maxTimes bounds the response times sent for one method in an interval.
const maxTimes = 1000

func (s *sample) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if len(s.times) < maxTimes {
		s.times = append(s.times, took)
	} else if i := rand.IntN(s.calls); i < maxTimes {
		s.times[i] = took
	}
}

// take returns and clears the sample. Each time stands for calls/len(times) calls.
func (s *sample) take() (calls int, times []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, times = s.calls, s.times
	s.calls, s.times = 0, nil
	return calls, times
}
