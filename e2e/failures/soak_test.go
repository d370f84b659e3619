package failures

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// The load has all algorithms, new users, ending windows, reloads, short connections and restarts
// of Redis. After it Weir has as many goroutines and open files as before. In a full run it has as
// much memory at the end of the load as after the warm-up.
func TestSoakLeaksNothing(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"redis", "memory"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := &soaked{path: filepath.Join(t.TempDir(), "rules.yaml")}
			var redis *redistest.Server
			var env []string
			if store == "redis" {
				redis = redistest.Start(t)
				env = onRedis(redis.Addr)
			} else {
				env = []string{"MEMORY_SNAPSHOT=" + filepath.Join(t.TempDir(), "snapshot"), "MEMORY_SNAPSHOT_INTERVAL=1s"}
			}
			s.reload(t, 0)
			s.weir = harness.MustStartWeir(t, harness.WeirOptions{Binary: weirBinary(t), Rules: s.path, Env: append(env, "GOGC=50")})
			length := either(6*time.Second, *soak)
			s.run(t, length, redis)
		})
	}
}

// A soaked is a Weir under a long load.
type soaked struct {
	weir *harness.Weir
	path string // the rules file
}

// reload writes rules with other limits, adds or removes a rule, and makes Weir load them.
func (s *soaked) reload(t *testing.T, n int) {
	t.Helper()
	text := fmt.Sprintf("domain: %s\ndescriptors:\n  - key: user_id\n    detailed_metric: true\n    descriptors:\n", domain)
	for _, a := range []string{"fixed_window", "sliding_log", "funnel"} {
		text += fmt.Sprintf("      - {key: action, value: %s, rate_limit: {algorithm: %s, unit: second, unit_multiplier: 2, requests_per_unit: %d}}\n",
			a, a, 2+n%3)
	}
	if n%2 == 1 {
		text += fmt.Sprintf("      - {key: action, value: of-reload-%d, rate_limit: {unit: hour, requests_per_unit: 1}}\n", n)
	}
	if n%5 == 4 {
		text += "      - {key: action, rate_limit: {unit: fortnight}}\n" // a failure: the old rules stay
	}
	next := s.path + ".next"
	must.Write(t, next, text)
	must.Succeed(t, os.Rename(next, s.path))
	if s.weir == nil {
		return
	}
	must.Succeed(t, s.weir.Hangup())
}

// run disturbs Weir under load for a time, and compares its size before and after.
func (s *soaked) run(t *testing.T, length time.Duration, redis *redistest.Server) {
	t.Helper()
	l := s.newLoad(t)
	idle, err := sizeOf(t.Context(), s.weir)
	must.Succeed(t, err)
	l.start(t)
	endChurn := s.churn(t)
	end := sync.OnceFunc(func() {
		endChurn()
		l.end()
	})
	defer end()
	seen := watchWeir(t, s.weir, length/100)
	reloads, restarts := s.disturb(t, length, redis)
	sizes := seen.end()
	end()

	before, after := firstAndLast(t, sizes)
	answers := l.counted[allowed] + l.counted[denied] + l.counted[failed]
	t.Logf("%d answers, %d failed, %d reloads, %d restarts of Redis; from %+v to %+v; at most %+v",
		answers, l.counted[failed], reloads, restarts, before, after, most(sizes))
	s.awaitIdle(t, idle)
	// A quarter of the memory is more than the connections that are open at one time need.
	if *full && after.resident > before.resident*5/4+16<<20 {
		t.Errorf("memory grew from %d MB to %d MB", before.resident>>20, after.resident>>20)
	}
	store := "memory"
	if redis != nil {
		store = "Redis"
	}
	record(row{
		failure: "soak on " + store,
		other: fmt.Sprintf("%v with %d reloads and %d restarts of Redis. Before and after: %d and %d goroutines, %d and %d files, %d and %d MB",
			length, reloads, restarts, before.goroutines, after.goroutines, before.files, after.files, before.resident>>20, after.resident>>20),
		rate: l.rate, size: most(sizes), errors: fmt.Sprintf("%d of %d", l.counted[failed], answers),
	})
}

// newLoad returns a load of users that each send a few requests in one window, and then none. It
// sends the first requests, so that the size of an idle Weir includes its connections.
func (s *soaked) newLoad(t *testing.T) *load {
	t.Helper()
	algorithms := []string{"fixed_window", "sliding_log", "funnel", "nobody-limits-this"}
	rate := either(300, 1500)
	perSecond := rate / 2 // users
	l := &load{rate: rate, clients: []*client{dial(t, s.weir.GRPC)}, forget: true, pick: func(n int) counter {
		return counter{algorithms[n%len(algorithms)], n/(4*perSecond)*perSecond/4 + n/len(algorithms)%(perSecond/4)}
	}}
	for n := range 10 {
		s.connectAndDisconnect(t, n)
		_, _ = l.clients[0].ask(t.Context(), counter{"funnel", n})
	}
	return l
}

// churn connects and disconnects clients until end is called.
func (s *soaked) churn(t *testing.T) (end func()) {
	t.Helper()
	var churn sync.WaitGroup
	stop := make(chan struct{})
	churn.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			s.connectAndDisconnect(t, n)
		}
	})
	return func() {
		close(stop)
		churn.Wait()
	}
}

// disturb reloads the rules for a time, and restarts redis, if it is not nil, after one, two and
// three fifths of it.
func (s *soaked) disturb(t *testing.T, length time.Duration, redis *redistest.Server) (reloads, restarts int) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < length || reloads < 10 || redis != nil && restarts < 3; {
		sleep(t, min(length/20, time.Second))
		reloads++
		s.reload(t, reloads)
		if part := int(time.Since(begin) * 5 / length); redis != nil && part > restarts && restarts < 3 {
			restarts++
			redis.Stop()
			again, err := redistest.Run(redis.Addr)
			must.Succeed(t, err)
			t.Cleanup(again.Stop)
			redis = again
		}
	}
	return reloads, restarts
}

// firstAndLast returns the median sizes of the second fifth and of the last one. The first fifth is
// the warm-up.
func firstAndLast(t *testing.T, sizes []size) (first, last size) {
	t.Helper()
	n := len(sizes)
	if *full && n < 20 {
		t.Fatalf("%d samples, want at least 20", n)
	}
	return median(sizes[n/5 : max(2*n/5, n/5+1)]), median(sizes[n-max(n/5, 1):])
}

// awaitIdle waits until Weir is as idle as before. A leak grows with each of the hundreds of
// connections and reloads. 50 goroutines and 20 files are more than Weir's connections to Redis
// need.
func (s *soaked) awaitIdle(t *testing.T, before size) {
	t.Helper()
	var last size
	must.Until(t, fmt.Sprintf("Weir is as idle as before: %+v", before), func() bool {
		var err error
		last, err = sizeOf(t.Context(), s.weir)
		return err == nil && last.goroutines <= before.goroutines+50 && last.files <= before.files+20
	})
	t.Logf("idle before: %+v, after: %+v", before, last)
}

// connectAndDisconnect connects, sends a request and disconnects, every second time before the
// answer.
func (s *soaked) connectAndDisconnect(t *testing.T, n int) {
	t.Helper()
	c := dialFor(t, s.weir.GRPC, 1)
	defer c.close()
	c.timeout = 5 * time.Second
	if n%2 == 0 {
		c.timeout = 100 * time.Microsecond
	}
	_, _ = c.ask(t.Context(), counter{"fixed_window", 999_000 + n%100}) // without a wait there may be no answer
}
