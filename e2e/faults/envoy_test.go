package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/redistest"
)

// Weir is killed and restarted behind a real Envoy. Meanwhile requests pass or get 500, as failure_mode_deny says. When
// Weir is back, limits hold as before.
func TestEnvoyAppliesFailureModeWhileWeirIsDown(t *testing.T) {
	t.Parallel()
	for _, deny := range []bool{false, true} {
		t.Run(fmt.Sprintf("failure_mode_deny %v", deny), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			ports, err := harness.FreePorts(1)
			if err != nil {
				t.Fatal(err)
			}
			o := harness.WeirOptions{
				Rules: writeFile(t, filepath.Join(t.TempDir(), "rules.yaml"), strings.Replace(rules(many), domain, "weir", 1)),
				Env:   append(onRedis(redis.Addr), "STORE_TIMEOUT=5s"), // only Weir fails here
				Port:  ports[0],
			}
			w := launchWeir(t, o)
			e := startEnvoy(t, w, deny, 5*time.Second)

			seen := e.browse(t, 8)
			sleep(t, either(500*time.Millisecond, 3*time.Second))
			killed := time.Now()
			kill(t, w.Process)
			sleep(t, either(time.Second, 5*time.Second))
			back := time.Now()
			w = launchWeir(t, o)
			t.Cleanup(func() { _, _ = w.Stop() })
			ready := time.Now()
			limited := until(t, "Envoy shows limits again", func() bool { return e.ask(t.Context(), "last", "first").limit })
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
			if errs == 0 {
				t.Error("no request was answered while Weir was down, so the outage was not tested")
			}
			t.Logf("down for %v, ready after %v, limits shown %v after that; %d of %d responses had no limit",
				back.Sub(killed), ready.Sub(back), limited.Sub(ready), errs, len(pages))
			record(row{
				fault:  fmt.Sprintf("Weir killed behind Envoy, failure_mode_deny %v", deny),
				saw:    fmt.Sprintf("%d of %d requests were answered %s", errs, len(pages), want),
				outage: limited.Sub(killed),
			})
		})
	}
}

// If Envoy's timeout is shorter than Weir's, a user waits for Envoy's timeout only. Hits that Envoy gave up on are not charged
// when Redis continues.
func TestEnvoyTimeoutChargesNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	w := startWeir(t, strings.Replace(rules(many), domain, "weir", 1), append(onRedis(redis.Addr), "STORE_TIMEOUT=30s")...)
	const timeout = 300 * time.Millisecond
	e := startEnvoy(t, w, false, timeout)
	until(t, "Envoy shows a limit", func() bool { return e.ask(t.Context(), userName(0), "first").limit })
	signal(t, redis, syscall.SIGSTOP)
	t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
	for n := range 5 {
		v := e.ask(t.Context(), userName(1+n), "first")
		if v.err != nil || v.status != 200 || v.limit {
			t.Errorf("while Redis was frozen: %+v, want 200 without a limit", v)
		}
		// Far above Envoy's timeout of 300 ms, and far below Weir's of 30 s.
		if took := v.end.Sub(v.begin); took > 10*time.Second {
			t.Errorf("an answer took %v", took)
		}
	}
	// Weir received the request after Envoy began to wait, so its deadline is later.
	sleep(t, timeout)
	signal(t, redis, syscall.SIGCONT)
	until(t, "Envoy shows a limit again", func() bool { return e.ask(t.Context(), userName(99), "first").limit })
	for c, n := range storedCounts(t, redis.Addr) {
		if c.user > 0 && c.user < 99 { // users 1 to 5 of the freeze; 0 and 99 were charged before and after
			t.Errorf("%v: charged %d times, although Envoy had given up on it", c, n)
		}
	}
}

// An envoy is a real Envoy in front of a Weir.
type envoy struct{ *harness.Envoy }

func startEnvoy(t *testing.T, w *harness.Weir, deny bool, timeout time.Duration) *envoy {
	t.Helper()
	if _, err := harness.FindEnvoy(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "envoy", "bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "failure_mode_deny: false", fmt.Sprint("failure_mode_deny: ", deny), 1)
	if deny && text == string(b) {
		t.Fatal("no failure_mode_deny in envoy/bootstrap.yaml")
	}
	e, err := harness.StartEnvoy(t.Context(), harness.EnvoyOptions{
		Bootstrap: writeFile(t, filepath.Join(t.TempDir(), "bootstrap.yaml"), text), Weir: w.GRPC, Dir: t.TempDir(), Timeout: timeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if code, err := e.Stop(); err != nil || code != 0 {
			t.Errorf("envoy: exit code %d, %v", code, err)
		}
	})
	return &envoy{e}
}

// A visit is the response to a user. limit reports whether it carries the limit, so whether Weir decided.
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

// browse sends requests of that many users, each user one at a time, until the returned function is called.
func (e *envoy) browse(t *testing.T, users int) (stop func() []visit) {
	t.Helper()
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
	return end
}
