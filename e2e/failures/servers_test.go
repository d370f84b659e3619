package failures

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const domain = "failures"

// The actions of the rules. Their windows do not end during a test.
var actions = []struct{ name, rule string }{
	{"window", "algorithm: fixed_window, unit: year"},
	{"first", "algorithm: fixed_window, unit: day, window_start: first_hit, count_denied: false"},
	{"log", "algorithm: sliding_log, unit: day"},
	{"funnel", "algorithm: funnel, unit: year"},
}

// rules limits each user to that many of each action per day or year. what is YAML before the
// descriptors.
func rules(limit int, what ...string) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "domain: %s\n%sdescriptors:\n  - key: user_id\n    descriptors:\n", domain, strings.Join(what, ""))
	for _, a := range actions {
		fmt.Fprintf(b, "      - {key: action, value: %s, rate_limit: {%s, requests_per_unit: %d}}\n", a.name, a.rule, limit)
	}
	return b.String()
}

// many is a limit that no test reaches.
const many = 1_000_000

// startWeir starts Weir with these rules, and stops it with the test: it must exit without an
// error. env names the store, and any setting that is not Weir's default.
func startWeir(t *testing.T, rules string, env ...string) *harness.Weir {
	t.Helper()
	return harness.MustStartWeir(t, harness.WeirOptions{
		Binary: weirBinary(t), Rules: must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), rules), Env: env,
	})
}

// onRedis returns the settings of a Weir on Redis.
func onRedis(addr string) []string {
	return []string{"BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + addr}
}

// withLongTimeout returns the settings of a Weir on a busy machine. There Redis sometimes takes
// longer than 15 ms, and many requests are in flight, which is not the failure under test.
func withLongTimeout(env ...string) []string {
	return either(append(env, "STORE_TIMEOUT=150ms", "MAX_IN_FLIGHT=100000"), env)
}

// A size is the memory, goroutines and files of a process.
type size struct {
	goroutines, files int
	resident          int64 // bytes
	heap              int64 // bytes in use
}

// sizeOf returns the current size of a Weir, from its metrics and from the kernel.
func sizeOf(ctx context.Context, w *harness.Weir) (size, error) {
	m, err := harness.GetMetrics(ctx, w.HTTP)
	if err != nil {
		return size{}, err
	}
	s := size{goroutines: int(m["go_goroutines"]), heap: int64(m["go_memstats_heap_inuse_bytes"])}
	s.resident, err = w.Resident()
	if err != nil {
		return size{}, err
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.PID()))
	s.files = len(files)
	return s, err
}

// A watch samples the size of a Weir.
type watch struct {
	stop context.CancelFunc
	done sync.WaitGroup
	seen []size
}

func watchWeir(t *testing.T, w *harness.Weir, every time.Duration) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &watch{stop: cancel}
	s.done.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			if now, err := sizeOf(ctx, w); err == nil {
				s.seen = append(s.seen, now)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	t.Cleanup(func() { s.end() })
	return s
}

// end stops sampling and returns the samples.
func (w *watch) end() []size {
	w.stop()
	w.done.Wait()
	return w.seen
}

// most returns the maximum of each field.
func most(seen []size) size {
	var m size
	for _, s := range seen {
		m.goroutines, m.files = max(m.goroutines, s.goroutines), max(m.files, s.files)
		m.resident, m.heap = max(m.resident, s.resident), max(m.heap, s.heap)
	}
	return m
}

// median returns the median of each field.
func median(seen []size) size {
	of := func(f func(s size) int64) int64 {
		all := make([]int64, len(seen))
		for i, s := range seen {
			all[i] = f(s)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return size{
		goroutines: int(of(func(s size) int64 { return int64(s.goroutines) })), files: int(of(func(s size) int64 { return int64(s.files) })),
		resident: of(func(s size) int64 { return s.resident }), heap: of(func(s size) int64 { return s.heap }),
	}
}

// sleep lets time pass, for a lasting failure or a load.
func sleep(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test is over")
	}
}
