package e2e_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	load "github.com/weir-rls/weir/internal/loadclient"
	"github.com/weir-rls/weir/internal/must"
)

var overloadRequests = flag.Uint64("overload-requests", 10_000, "requests of each load of TestOverloadChargesNoShedRequest")

// Three and ten times MAX_IN_FLIGHT clients send requests, and retry a millisecond after a request
// is shed. Every request is decided or shed, no shed request is charged, and memory does not grow.
// To compare the logged rates of decisions, run the test with more requests on an idle machine.
func TestOverloadChargesNoShedRequest(t *testing.T) {
	t.Parallel()
	const bound, streams = 64, 128
	for _, store := range stores {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			w := harness.MustStartWeir(t, harness.WeirOptions{
				Binary: binary(t), Rules: must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), hourly(1_000_000)), Redis: store.redis(t),
				Env: []string{"STORE_TIMEOUT=1m", "MAX_IN_FLIGHT=64"},
			})
			var peak float64
			var decided, refused uint64
			memory := 0
			for _, clients := range []int{bound, bound, 3 * bound, 10 * bound, 3 * bound, 10 * bound} {
				conns := (clients + streams - 1) / streams
				r, err := load.Run(t.Context(), load.Options{
					Addr: w.GRPC, Request: load.NewRequest("weir", "login"), Users: load.Uniform(1000), Conns: max(conns, 2), InFlight: clients / max(conns, 2),
					Backoff: time.Millisecond, Count: *overloadRequests, Duration: time.Minute,
				})
				must.Succeed(t, err)
				resident := metric(t, w, "process_resident_memory_bytes")
				peak = max(peak, r.PerSecond())
				decided, refused = decided+r.OK+r.Over, refused+r.Shed
				t.Logf("%4d clients: %6.0f decided a second, %3.0f %% of the most, %6d refused; p99 %v; %d MB resident",
					clients, r.PerSecond(), 100*r.PerSecond()/peak, r.Shed, r.Latency.Quantile(0.99), resident/1e6)
				if r.Errors > 0 {
					t.Errorf("%d clients: %d errors: %s", clients, r.Errors, r.Error)
				}
				if clients == bound {
					memory = max(memory, resident)
				} else if resident > memory+160<<20 { // 128 MB may be garbage if little memory is live
					t.Errorf("%d clients: %d bytes of memory, after %d", clients, resident, memory)
				}
			}
			must.Until(t, "nothing is under way", func() bool { return metric(t, w, "weir_requests_in_flight") == 0 })
			// The load client does not count the answers at the start and the end of a load.
			if n := uint64(metric(t, w, "weir_refused_requests_total")); n < refused {
				t.Errorf("the server counts %d refused, the clients %d", n, refused)
			}
			if decided == 0 {
				t.Error("nothing was decided")
			}
			mustBeWell(t, w)
		})
	}
}
