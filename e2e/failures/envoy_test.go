package failures

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// Weir is killed and restarted behind a real Envoy. Meanwhile requests pass or get 500, as
// failure_mode_deny says. When Weir is back, limits hold as before.
func TestEnvoyAppliesFailureModeWhileWeirIsDown(t *testing.T) {
	t.Parallel()
	for _, deny := range []bool{false, true} {
		t.Run(fmt.Sprintf("failure_mode_deny %v", deny), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			ports := harness.MustFreePorts(t, 1)
			o := harness.WeirOptions{
				Binary: weirBinary(t),
				Rules:  must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), strings.Replace(rules(many), domain, "weir", 1)),
				Env:    append(onRedis(redis.Addr), "STORE_TIMEOUT=1m"), // only Weir fails here
				Port:   ports[0],
			}
			w := harness.MustStartWeir(t, o)
			e := startEnvoy(t, w, fmt.Sprint("failure_mode_deny: ", deny), testTimeout)

			seen, undecided := e.browse(t, 8)
			sleep(t, either(500*time.Millisecond, 3*time.Second))
			killed := time.Now()
			w.Kill()
			sleep(t, either(time.Second, 5*time.Second))
			must.Until(t, "a response has no limit", func() bool { return undecided.Load() > 0 })
			back := time.Now()
			harness.MustStartWeir(t, o)
			ready := time.Now()
			limited := must.Until(t, "Envoy shows limits again", func() bool { return e.ask(t.Context(), "last", "first").limit })
			sleep(t, either(200*time.Millisecond, 3*time.Second))
			pages := seen()

			want, errs := "200", 0
			if deny {
				want = "500"
			}
			for _, p := range pages {
				switch {
				case p.err != nil:
					t.Fatalf("Envoy did not answer: %v", p.err)
				case p.end.Before(killed) && (p.status != 200 || !p.limit):
					t.Fatalf("before Weir was killed: %+v", p)
				case !p.limit && strconv.Itoa(p.status) != want:
					t.Fatalf("while Weir was down: %+v, want %s", p, want)
				case p.begin.After(limited.Add(time.Second)) && !p.limit && *full:
					t.Errorf("a second after Envoy showed limits again: %+v", p)
				case !p.limit:
					errs++
				}
			}
			t.Logf("down for %v, ready after %v, limits shown %v after that; %d of %d responses had no limit",
				back.Sub(killed), ready.Sub(back), limited.Sub(ready), errs, len(pages))
			record(row{
				failure: fmt.Sprintf("Weir killed behind Envoy, failure_mode_deny %v", deny),
				errors:  fmt.Sprintf("%d of %d, to which Envoy answered %s", errs, len(pages), want),
				outage:  limited.Sub(killed),
			})
		})
	}
}

// If Envoy's timeout is shorter than Weir's, a user waits for Envoy's timeout only. Hits that Envoy
// gave up on are not charged when Redis continues.
func TestEnvoyTimeoutChargesNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := startWeir(t, strings.Replace(rules(many), domain, "weir", 1), append(onRedis(redis.Addr), "STORE_TIMEOUT=30s")...)
	const timeout = 300 * time.Millisecond
	e := startEnvoy(t, w, "failure_mode_deny: false", timeout)
	machine := watchStalls(t)
	must.Until(t, "Envoy shows a limit", func() bool { return e.ask(t.Context(), userName(0), "first").limit })
	before := givenUp(t, w)
	signal(t, redis, syscall.SIGSTOP)
	t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
	for n := range 5 {
		stalled := machine.stalls()
		v := e.ask(t.Context(), userName(1+n), "first")
		if v.err != nil || v.status != 200 || v.limit {
			t.Errorf("while Redis was frozen: %+v, want 200 without a limit", v)
		}
		// Far above Envoy's timeout of 300 ms, and far below Weir's of 30 s.
		if took := v.end.Sub(v.begin) - (machine.stalls() - stalled); took > 10*time.Second {
			t.Errorf("an answer took %v, beside the stalls of the machine", took)
		}
	}
	// Weir reads Envoy's connection in order. When it answers a request without a rule, it knows
	// which calls Envoy has given up.
	const decisions = "cluster.backend.ratelimit.ok"
	decided := e.MustStat(t, decisions)
	must.Until(t, "Weir answers a request without a rule", func() bool {
		e.ask(t.Context(), "nobody", "nothing")
		return e.MustStat(t, decisions) > decided
	})
	must.Until(t, "Weir has ended the calls", func() bool { return harness.MustMetrics(t, w.HTTP)["weir_requests_in_flight"] == 0 })
	if n := givenUp(t, w) - before; n < 5 {
		t.Errorf("%v requests are counted as given up, want at least 5", n)
	}
	signal(t, redis, syscall.SIGCONT)
	must.Until(t, "Envoy shows a limit again", func() bool { return e.ask(t.Context(), userName(99), "first").limit })
	for c, n := range storedCounts(t, redis.Addr) {
		if c.user > 0 && c.user < 99 { // users 1 to 5 of the freeze; 0 and 99 were charged before and after
			t.Errorf("%v: charged %d times, although Envoy had given up on it", c, n)
		}
	}
}

// givenUp returns how many requests Envoy has given up, as Weir counts them. Envoy resets a request
// at its timeout, at about the time at which its deadline passes in Weir.
func givenUp(t *testing.T, w *harness.Weir) float64 {
	t.Helper()
	metrics := harness.MustMetrics(t, w.HTTP)
	return metrics[`weir_requests_total{code="Canceled",overall=""}`] + metrics[`weir_requests_total{code="DeadlineExceeded",overall=""}`]
}

// An envoy is a real Envoy in front of a Weir.
type envoy struct{ *harness.Envoy }

// startEnvoy starts Envoy with a failureMode, such as "failure_mode_deny: true".
func startEnvoy(t *testing.T, w *harness.Weir, failureMode string, timeout time.Duration) *envoy {
	t.Helper()
	text := string(must.Read(t, filepath.Join("..", "..", "envoy", "bootstrap.yaml")))
	const inFile = "failure_mode_deny: false"
	if !strings.Contains(text, inFile) {
		t.Fatalf("no %q in envoy/bootstrap.yaml", inFile)
	}
	text = strings.Replace(text, inFile, failureMode, 1)
	return &envoy{harness.MustStartEnvoy(t, harness.EnvoyOptions{
		Bootstrap: must.Write(t, filepath.Join(t.TempDir(), "bootstrap.yaml"), text), Weir: w.GRPC, Timeout: timeout,
	})}
}

// A visit is the response to a user. limit reports whether it carries the limit, so whether Weir
// decided.
type visit struct {
	begin, end time.Time
	status     int
	limit      bool
	err        error
}

func (e *envoy) ask(ctx context.Context, user, action string) visit {
	v := visit{begin: time.Now()}
	a, err := e.Do(ctx, user, action)
	v.status, v.limit, v.err, v.end = a.Status, a.Limit != "", err, time.Now()
	return v
}

// browse sends requests of that many users, each user one at a time, until stop is called. It
// counts the responses without a limit.
func (e *envoy) browse(t *testing.T, users int) (stop func() []visit, undecided *atomic.Int64) {
	t.Helper()
	undecided = &atomic.Int64{}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var mu sync.Mutex
	var all []visit
	var running sync.WaitGroup
	for n := range users {
		running.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				v := e.ask(context.Background(), userName(n), "first")
				if v.err == nil && !v.limit {
					undecided.Add(1)
				}
				mu.Lock()
				all = append(all, v)
				mu.Unlock()
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	end := sync.OnceValue(func() []visit {
		cancel()
		running.Wait()
		return all
	})
	t.Cleanup(func() { end() })
	return end, undecided
}
