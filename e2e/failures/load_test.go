package failures

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/must"
)

// A client sends requests to one server. Its timeout is far longer than Envoy's, so that the
// latency of the server is measured.
type client struct {
	conns   []ratelimitv3.RateLimitServiceClient
	closers []*grpc.ClientConn
	next    atomic.Uint32
	timeout time.Duration
}

const testTimeout = 2 * time.Minute

// dial connects to a server until the test ends.
func dial(tb testing.TB, addr string) *client {
	tb.Helper()
	c := dialFor(tb, addr, 4) // a connection has at most 128 concurrent requests
	tb.Cleanup(c.close)
	return c
}

func dialFor(tb testing.TB, addr string, conns int) *client {
	tb.Helper()
	c := &client{timeout: testTimeout}
	for range conns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		must.Succeed(tb, err)
		c.conns, c.closers = append(c.conns, ratelimitv3.NewRateLimitServiceClient(conn)), append(c.closers, conn)
	}
	return c
}

func (c *client) close() {
	for _, conn := range c.closers {
		_ = conn.Close()
	}
}

// A counter is the key that a request charges: a user and an action.
type counter struct {
	action string
	user   int
}

func (c counter) String() string { return c.action + " of " + userName(c.user) }

func userName(n int) string { return fmt.Sprintf("user-%06d", n) }

func (c counter) request() *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "user_id", Value: userName(c.user)}, {Key: "action", Value: c.action},
		},
	}}}
}

// A verdict is the kind of answer to a request.
type verdict uint8

const (
	allowed verdict = iota
	denied
	failed
)

// ask charges a counter by one hit.
func (c *client) ask(ctx context.Context, what counter) (verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn := c.conns[int(c.next.Add(1))%len(c.conns)]
	res, err := conn.ShouldRateLimit(ctx, what.request())
	switch {
	case err != nil:
		return failed, err
	case res.OverallCode == ratelimitv3.RateLimitResponse_OK:
		return allowed, nil
	default:
		return denied, nil
	}
}

// An answer is the outcome of a request.
type answer struct {
	counter
	due, sent, end time.Time // when the request was due, when it was sent, and when its answer arrived
	verdict        verdict
	code           codes.Code
}

func (a *answer) took() time.Duration { return a.end.Sub(a.due) }

// answers holds the answers to a load, in no order.
type answers []answer

// A load sends requests at a rate, whether or not they are answered. In a short run it omits the
// requests that were due while the machine stalled: all at once they would be another load.
type load struct {
	clients []*client           // in turn
	rate    int                 // per second, of all clients
	most    int                 // concurrent requests, 4096 if 0; beyond it a request is counted and not sent
	pick    func(n int) counter // the counter of request n
	forget  bool                // count the answers and do not keep them

	unsent  atomic.Int64
	mu      sync.Mutex
	parts   []answers       // equally long slices, because a growing slice would be copied under the lock
	counted [failed + 1]int // answers by verdict
	sent    int             // requests
	open    map[int]bool    // the requests without an answer
	stop    context.CancelFunc
	running sync.WaitGroup
}

// start begins the load. It ends with the test at the latest.
func (l *load) start(t *testing.T) {
	t.Helper()
	if l.most == 0 {
		l.most = 4096
	}
	l.open = map[int]bool{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	l.stop = cancel
	l.running.Go(func() { l.run(ctx) })
	t.Cleanup(func() { l.end() })
}

// end stops the load, waits for open requests, and returns all answers.
func (l *load) end() answers {
	l.stop()
	l.running.Wait()
	return slices.Concat(l.parts...)
}

// keep adds an answer. The caller holds the lock.
func (l *load) keep(a answer) {
	const each = 4096
	last := len(l.parts) - 1
	if last < 0 || len(l.parts[last]) == each {
		l.parts, last = append(l.parts, make(answers, 0, each)), last+1
	}
	l.parts[last] = append(l.parts[last], a)
}

func (l *load) run(ctx context.Context) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	inFlight := make(chan struct{}, l.most)
	every := time.Second / time.Duration(l.rate)
	due := time.Now()
	for n := 0; ; {
		if now := time.Now(); !*full && now.Sub(due) > 100*time.Millisecond {
			due = now
		}
		for ; !due.After(time.Now()); due = due.Add(every) {
			select {
			case inFlight <- struct{}{}:
			default:
				l.unsent.Add(1)
				continue
			}
			at, number, what, c := due, n, l.pick(n), l.clients[n%len(l.clients)]
			n++
			l.mu.Lock()
			l.sent, l.open[number] = n, true
			l.mu.Unlock()
			l.running.Go(func() {
				a := answer{counter: what, due: at, sent: time.Now()}
				v, err := c.ask(context.Background(), what)
				a.end, a.verdict, a.code = time.Now(), v, status.Code(err)
				<-inFlight
				l.mu.Lock()
				l.counted[v]++
				delete(l.open, number)
				if !l.forget {
					l.keep(a)
				}
				l.mu.Unlock()
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// answered returns the number of answers.
func (l *load) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, p := range l.parts {
		n += len(p)
	}
	return n
}

// awaitAnswers waits until every request that has been sent so far is answered.
func (l *load) awaitAnswers(t *testing.T, what string) {
	t.Helper()
	l.mu.Lock()
	sent := l.sent
	l.mu.Unlock()
	must.Until(t, what, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for number := range l.open {
			if number < sent {
				return false
			}
		}
		return true
	})
}

// since returns the answers so far to requests that were sent at from or later.
func (l *load) since(from time.Time) answers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.parts...).filter(func(a *answer) bool { return !a.sent.Before(from) })
}

// filter returns the answers for which f is true.
func (all answers) filter(f func(a *answer) bool) answers {
	var some answers
	for i := range all {
		if f(&all[i]) {
			some = append(some, all[i])
		}
	}
	return some
}

// between returns the answers to requests that were due at from or later, and before to.
func (all answers) between(from, to time.Time) answers {
	return all.filter(func(a *answer) bool { return !a.due.Before(from) && a.due.Before(to) })
}

// within returns the answers that arrived before to, to requests that were sent at from or later.
func (all answers) within(from, to time.Time) answers {
	return all.filter(func(a *answer) bool { return !a.sent.Before(from) && a.end.Before(to) })
}

// withVerdict returns the answers with the verdict v.
func (all answers) withVerdict(v verdict) answers {
	return all.filter(func(a *answer) bool { return a.verdict == v })
}

// byCounter counts answers by counter.
func (all answers) byCounter() map[counter]int {
	n := map[counter]int{}
	for i := range all {
		n[all[i].counter]++
	}
	return n
}

// quantile returns the latency that the fraction q of all answers did not exceed.
func (all answers) quantile(q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	took := make([]time.Duration, len(all))
	for i := range all {
		took[i] = all[i].took()
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

// failingFor returns how long after from requests still failed. That is the end of the last slice
// of time in which more than the fraction part of the due requests failed. A busy machine delays
// single answers at any time, so part is not 0.
func (all answers) failingFor(from time.Time, part float64) (d time.Duration) {
	slice := either(500*time.Millisecond, 100*time.Millisecond)
	var failures, n []int
	for i := range all {
		if at := int(all[i].due.Sub(from) / slice); all[i].due.After(from) {
			for len(n) <= at {
				failures, n = append(failures, 0), append(n, 0)
			}
			n[at]++
			if all[i].verdict == failed {
				failures[at]++
			}
		}
	}
	for at := range n {
		if float64(failures[at]) > part*float64(n[at]) {
			d = time.Duration(at+1) * slice
		}
	}
	return d
}

// codes returns the number of answers by gRPC code.
func (all answers) codes() string {
	n := map[codes.Code]int{}
	for i := range all {
		n[all[i].code]++
	}
	return fmt.Sprint(n)
}
