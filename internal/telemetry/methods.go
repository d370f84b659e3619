package telemetry

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// methods counts gRPC calls by method, as the incumbent does: those that have a handler, so they are few.
type methods struct {
	took    *prometheus.HistogramVec
	unit    time.Duration // what took observes in
	sending *atomic.Bool  // somebody sends times
	m       *sync.Map     // name -> *method; those of one name in two services are one
	asked   *method       // ShouldRateLimit
}

type method struct {
	name  string
	calls scalar
	took  prometheus.Observer
	times sample
}

// responseSeconds are the incumbent's buckets from 5 ms on, and some below: that is where an answer should be.
var responseSeconds = []float64{
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10,
}

func newMethods(milliseconds bool) methods {
	unit, buckets := time.Second, responseSeconds
	if milliseconds {
		unit, buckets = time.Millisecond, make([]float64, len(responseSeconds))
		for i, s := range responseSeconds {
			buckets[i] = s * 1000
		}
	}
	m := methods{
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ratelimit_service_response_time_seconds", Buckets: buckets,
			Help: "What gRPC calls took, in milliseconds if PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS says so.",
		}, []string{"grpc_method"}),
		unit: unit, sending: &atomic.Bool{}, m: &sync.Map{},
	}
	m.asked = m.of("ShouldRateLimit") // there before the first call
	return m
}

// Unary is an interceptor that counts calls, and how long they took. It wants to be the outermost. Calls that Answered
// is told of are counted there, and may not come by here too.
func (m *Metrics) Unary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	start := time.Now()
	response, err := handle(ctx, request)
	m.incumbent.methods.called(info.FullMethod, time.Since(start))
	return response, err
}

func (m *methods) called(full string, took time.Duration) { m.count(m.of(full), took) }

func (m *methods) count(one *method, took time.Duration) {
	one.calls.n.Add(1)
	one.took.Observe(float64(took) / float64(m.unit))
	if m.sending.Load() {
		one.times.add(took)
	}
}

func (m *methods) of(full string) *method {
	name := full[strings.LastIndexByte(full, '/')+1:]
	if found, ok := m.m.Load(name); ok {
		return found.(*method)
	}
	made := &method{
		name: name, took: m.took.WithLabelValues(name),
		calls: scalar{statsd: "ratelimit_server." + name + ".total_requests"},
	}
	found, _ := m.m.LoadOrStore(name, made)
	return found.(*method)
}

// Describe describes the calls; the times are a metric of their own.
func (m *methods) Describe(to chan<- *prometheus.Desc) { to <- totalRequests }

var totalRequests = prometheus.NewDesc("ratelimit_service_total_requests", "gRPC calls.", []string{"grpc_method"}, nil)

// Collect collects the calls.
func (m *methods) Collect(to chan<- prometheus.Metric) {
	m.each(func(one *method) { to <- metric(totalRequests, one.calls.n.Load(), []string{one.name}) })
}

func (m *methods) each(do func(*method)) {
	m.m.Range(func(_, found any) bool { do(found.(*method)); return true })
}

// A sample is some of the times of a second: all of them while they are few, and else a fair choice.
type sample struct {
	mu    sync.Mutex
	seen  int
	times []time.Duration
}

// maxTimes bounds the lines that are sent for times: of each method so many in a second.
const maxTimes = 1000

func (s *sample) add(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if len(s.times) < maxTimes {
		s.times = append(s.times, took)
	} else if i := rand.IntN(s.seen); i < maxTimes {
		s.times[i] = took
	}
}

// take empties the sample. Each of its times stands for seen/len(times).
func (s *sample) take() (seen int, times []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, times = s.seen, s.times
	s.seen, s.times = 0, nil
	return seen, times
}
