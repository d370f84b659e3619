package failures

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// A frozenRun holds the results of a load before, during and after a freeze of Redis.
type frozenRun struct {
	all              answers
	stopped, resumed time.Time       // the freeze
	before, frozen   answers         // due before, and during the freeze
	undecided        answers         // sent and answered during the freeze
	afterwards       answers         // due a second or more after the freeze
	back             time.Duration   // from the end of the freeze until requests no longer failed
	unsent           int64           // requests beyond the bound on concurrent requests
	size             size            // the maximum of Weir
	charged          map[counter]int // the final counts in Redis
	late             int             // hits charged at least 100 ms after they had been answered with an error
	frozenFor        time.Duration
}

// Each phase has its own users, so the final counters in Redis show the phase of each charge.
const (
	beforeUsers = 0
	frozenUsers = 100_000
	afterUsers  = 900_000
)

// freeze puts a load on a server, and stops its Redis with SIGSTOP for 2 s, or 30 s in a full run.
func freeze(t *testing.T, clients []*client, redis *redistest.Server, weir *harness.Weir) *frozenRun {
	t.Helper()
	calm, silence := either(time.Second, 5*time.Second), either(2*time.Second, 30*time.Second)
	var phase atomic.Int64
	l := &load{clients: clients, rate: either(500, 5000), most: either(1000, 4096), pick: func(n int) counter {
		if p := int(phase.Load()); p != frozenUsers {
			return counter{"first", p + n%1000}
		}
		return counter{"first", frozenUsers + n%(afterUsers-frozenUsers)}
	}}
	r := &frozenRun{frozenFor: silence}
	var seen *watch
	if weir != nil {
		seen = watchWeir(t, weir, 250*time.Millisecond)
	}
	phase.Store(beforeUsers)
	l.start(t)
	sleep(t, calm)
	signal(t, redis, syscall.SIGSTOP)
	t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
	r.stopped = time.Now()
	phase.Store(frozenUsers)
	sleep(t, silence)
	if weir != nil {
		l.awaitAnswers(t, "no answer waits for Redis")
	}
	r.resumed = time.Now()
	phase.Store(afterUsers)
	signal(t, redis, syscall.SIGCONT)
	if *full {
		sleep(t, calm+time.Second)
	} else {
		must.Until(t, "Redis decides again", func() bool { return len(l.since(r.resumed).withVerdict(allowed)) > 100 })
	}
	r.all = l.end()
	r.unsent = l.unsent.Load()
	if seen != nil {
		r.size = most(seen.end())
	}
	r.before, r.frozen = r.all.between(time.Time{}, r.stopped), r.all.between(r.stopped, r.resumed)
	r.undecided = r.all.within(r.stopped, r.resumed)
	r.afterwards = r.all.between(r.resumed.Add(time.Second), r.resumed.Add(time.Hour))
	r.back = r.all.failingFor(r.resumed, .05)
	r.charged = storedCounts(t, redis.Addr)
	acknowledged := r.all.withVerdict(allowed).byCounter()
	longBefore := r.frozen.withVerdict(failed).filter(func(a *answer) bool { return a.end.Before(r.resumed.Add(-100 * time.Millisecond)) })
	for c := range longBefore.byCounter() {
		r.late += max(0, r.charged[c]-acknowledged[c])
	}
	return r
}

// signal sends SIGSTOP or SIGCONT to a server, and returns once the server has stopped or
// continued.
func signal(t *testing.T, s *redistest.Server, sig syscall.Signal) {
	t.Helper()
	must.Succeed(t, s.Signal(sig))
	must.Until(t, fmt.Sprint(sig, " has reached Redis"), func() bool {
		b := must.Read(t, fmt.Sprintf("/proc/%d/stat", s.PID()))
		_, state, _ := strings.Cut(string(b), ") ")
		return strings.HasPrefix(state, "T") == (sig == syscall.SIGSTOP)
	})
}

// While Redis is frozen, no answer waits for it and Weir does not grow. The charges match the
// answers.
func TestFrozenRedisFailsRequestsInTime(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := startWeir(t, rules(many), withLongTimeout(onRedis(redis.Addr)...)...)
	r := freeze(t, []*client{dial(t, w.GRPC)}, redis, w)

	// On a quiet machine no request fails before the freeze. More than a tenth means that the
	// latencies below measure the machine.
	if n := len(r.before.withVerdict(failed)); *full && n > len(r.before)/10 {
		t.Fatalf("%d of %d requests failed before: this machine is too busy to measure", n, len(r.before))
	}
	if n, failures := len(r.undecided), len(r.undecided.withVerdict(failed)); failures < n || n == 0 {
		t.Errorf("of %d requests %d failed while Redis was frozen, want all", n, failures)
	}
	if got := r.frozen.withVerdict(failed).codes(); got != fmt.Sprintf("map[Unavailable:%d]", len(r.frozen.withVerdict(failed))) {
		t.Errorf("answers were %s, want all UNAVAILABLE", got)
	}
	// 25 ms is STORE_TIMEOUT (15 ms) and 10 ms for the rest of the request. A second is enough for
	// the breaker to close.
	if *full {
		if p := r.all.between(r.stopped, r.resumed.Add(time.Hour)).quantile(.999); p > 25*time.Millisecond {
			t.Errorf("99.9 %% of answers came within %v, want 25ms", p)
		}
		if r.back > time.Second {
			t.Errorf("errors until %v after Redis went on, want 1s", r.back)
		}
		if p := r.afterwards.quantile(.999); p > 25*time.Millisecond {
			t.Errorf("a second later 99.9 %% of answers came within %v", p)
		}
		if n := len(r.afterwards.withVerdict(failed)); n > len(r.afterwards)/2 {
			t.Errorf("%d of %d requests failed later than a second after Redis went on: %s", n, len(r.afterwards), r.afterwards.codes())
		}
		if r.unsent > 0 {
			t.Errorf("%d requests were not sent: 4096 were in flight", r.unsent)
		}
	}
	// Requests fail after STORE_TIMEOUT, so 5000 requests/s leave about a hundred in flight. 3000
	// goroutines and 256 MiB are far above that, and far below a goroutine for each request of the
	// freeze.
	if r.size.goroutines > 3000 || r.size.resident > 256<<20 {
		t.Errorf("Weir grew to %+v, want at most 3000 goroutines and 256 MiB", r.size)
	}
	want := len(r.all.withVerdict(failed))
	must.Until(t, fmt.Sprintf("weir_requests_total counts %d Unavailable", want), func() bool {
		return int(harness.MustMetrics(t, w.HTTP)[`weir_requests_total{code="Unavailable",overall=""}`]) == want
	})

	acknowledged, unknown := r.all.withVerdict(allowed).byCounter(), r.all.withVerdict(failed).byCounter()
	for c, n := range r.charged {
		if n > acknowledged[c]+unknown[c] {
			t.Errorf("%v: %d were charged, of %d allowed and %d failed: a hit counts twice", c, n, acknowledged[c], unknown[c])
		}
	}
	for c, n := range acknowledged {
		if r.charged[c] < n {
			t.Errorf("%v: %d were charged, and %d allowed", c, r.charged[c], n)
		}
	}
	if r.late > 0 {
		t.Errorf("%d hits were charged after the freeze, although they had been answered with an error long before", r.late)
	}
	record(row{
		failure: fmt.Sprintf("Redis frozen for %v", r.frozenFor), rate: either(500, 5000), of: r.all, while: r.frozen,
		outage: r.back + r.frozenFor, size: r.size, late: fmt.Sprint(r.late),
	})
}

// The same load on envoyproxy/ratelimit, for the table. One client waits for each answer, the other
// gives up after 20 ms like Envoy.
func TestFrozenRedisBehindRatelimitIsMeasured(t *testing.T) {
	t.Parallel()
	if !*full {
		t.Skip("only make chaos measures envoyproxy/ratelimit")
	}
	path := harness.MustFindRatelimit(t)
	for _, wait := range []time.Duration{testTimeout, 20 * time.Millisecond} {
		redis := redistest.Start(t)
		p := startRatelimit(t, path, redis.Addr)
		c := dial(t, p.GRPC)
		c.timeout = wait
		r := freeze(t, []*client{c}, redis, nil)
		resident, err := p.Resident()
		if err != nil {
			t.Error(err)
		}
		name := fmt.Sprintf("Redis frozen for 30s, envoyproxy/ratelimit: clients that wait %v", wait)
		if wait == testTimeout {
			name = "Redis frozen for 30s, envoyproxy/ratelimit: clients that wait, at most 4096 requests in flight"
		}
		t.Logf("%s: %d not sent; errors %s; back after %v", name, r.unsent, r.all.codes(), r.back)
		record(row{
			failure: name, rate: 5000, of: r.all, while: r.frozen, outage: r.back + r.frozenFor,
			size: size{resident: resident}, late: fmt.Sprint(r.late),
		})
	}
}

func startRatelimit(t *testing.T, path, redis string) *harness.Ratelimit {
	t.Helper()
	return harness.MustStartRatelimit(t, harness.RatelimitOptions{
		Binary: path, Redis: redis, Dir: t.TempDir(),
		Rules: fmt.Sprintf("domain: %s\ndescriptors:\n  - key: user_id\n    descriptors:\n"+
			"      - {key: action, value: first, rate_limit: {unit: year, requests_per_unit: %d}}\n", domain, many),
	})
}
