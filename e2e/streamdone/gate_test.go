package streamdone

import (
	"context"
	"io"
	"sync"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/relay"
)

// A gate is a proxy in front of Redis. While it is closed, Redis receives commands, and its replies
// wait.
type gate struct {
	addr string

	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

// newGate starts an open gate that ends with the test.
func newGate(t *testing.T, redis string) *gate {
	t.Helper()
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	g.addr = relay.Start(t, func() string { return redis }, func(server, client io.Writer) (requests, replies io.Writer) {
		return server, relay.WriteFunc(func(reply []byte) (int, error) {
			g.mu.Lock()
			opened := g.opened
			g.mu.Unlock()
			<-opened
			return client.Write(reply)
		})
	})
	t.Cleanup(g.open)
	return g
}

// close holds replies from now on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = make(chan struct{})
}

// open lets the held replies pass. An open gate stays open.
func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// A slowWeir is a Weir behind a gate.
type slowWeir struct {
	*harness.Weir
	client ratelimitv3.RateLimitServiceClient
	gate   *gate
	alone  sync.Mutex // held while the gate is closed
}

func startSlowWeir(t *testing.T, redis string, env []string) *slowWeir {
	t.Helper()
	g := newGate(t, redis)
	w := startWeir(t, harness.WeirOptions{Redis: g.addr, Env: env})
	return &slowWeir{Weir: w, client: dial(t, w.GRPC), gate: g}
}

// A closedGate is the gate of a slowWeir while one test uses it.
type closedGate struct {
	slow           *slowWeir
	scene          *scene
	answers, ended float64 // before the gate was closed: the answers of Weir, and the leases that it ended
	end            sync.Once
}

// closeGate closes the gate for one test.
func (w *slowWeir) closeGate(t *testing.T, s *scene) *closedGate {
	t.Helper()
	w.alone.Lock()
	g := &closedGate{slow: w, scene: s}
	before, peeks := w.metric(t, "weir_requests_total"), 0.0
	must.Until(t, "the slow Weir has a connection", func() bool {
		peeks++
		_, err := peek(t.Context(), w.client, s.kind, s.user)
		return err == nil
	})
	must.Until(t, "the slow Weir has counted these peeks", func() bool {
		g.answers = w.metric(t, "weir_requests_total")
		return g.answers >= before+peeks
	})
	g.ended = w.metric(t, "weir_leases_given_up_total")
	w.gate.close()
	return g
}

// forward passes a call to the slow Weir.
func (g *closedGate) forward() func(context.Context, forward) (*ratelimitv3.RateLimitResponse, error) {
	return func(ctx context.Context, _ forward) (*ratelimitv3.RateLimitResponse, error) {
		first, _ := g.scene.rec.of(g.scene.user)
		return g.slow.client.ShouldRateLimit(ctx, first[len(first)-1].request)
	}
}

// open opens the gate, and reports whether Weir gave up the lease of the call. Otherwise it
// answered before it saw that Envoy canceled.
func (g *closedGate) open(t *testing.T) (ended bool) {
	t.Helper()
	g.slow.gate.open()
	must.Until(t, "Weir has answered", func() bool { return g.slow.metric(t, "weir_requests_total") > g.answers })
	ended = g.slow.metric(t, "weir_leases_given_up_total") > g.ended
	g.abandon()
	return ended
}

// abandon opens the gate, and lets other tests close it.
func (g *closedGate) abandon() {
	g.end.Do(func() {
		g.slow.gate.open()
		g.slow.alone.Unlock()
	})
}

// metric returns a metric of the slow Weir, summed over its labels.
func (w *slowWeir) metric(t *testing.T, name string) float64 {
	t.Helper()
	return harness.MustMetrics(t, w.HTTP).Sum(name)
}
