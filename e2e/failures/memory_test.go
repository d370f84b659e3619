package failures

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

// A process with its counters in memory is killed and replaced. Without a snapshot, every limit may
// be spent once more. With a snapshot, the new process has the counters of the last save.
func TestSnapshotRestoresCountersAfterKill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		snapshots bool
	}{{"no MEMORY_SNAPSHOT", false}, {"MEMORY_SNAPSHOT every second", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := harness.WeirOptions{Binary: weirBinary(t), Rules: must.Write(t, filepath.Join(t.TempDir(), "rules.yaml"), rules(outageLimit))}
			file := filepath.Join(t.TempDir(), "snapshot")
			if c.snapshots {
				o.Env = []string{"MEMORY_SNAPSHOT=" + file, "MEMORY_SNAPSHOT_INTERVAL=1s"}
			}
			w := harness.MustStartWeir(t, o)
			users := 24
			l := &load{rate: 400, clients: []*client{dial(t, w.GRPC)}, pick: func(n int) counter {
				return counter{actions[n%len(actions)].name, n / len(actions) % (users / len(actions))}
			}}
			l.start(t)
			must.Until(t, "half of all is spent", func() bool { return l.answered() >= users*outageLimit/2 })
			saved := time.Time{} // requests that were sent before are in the snapshot
			if c.snapshots {
				saved = time.Now()
				l.awaitAnswers(t, "answers to the requests so far")
				for range 2 { // the first save may have begun before
					awaitSave(t, file)
				}
			}
			w.Kill()
			before := l.end()
			again := harness.MustStartWeir(t, o)

			lost := before.withVerdict(allowed).filter(func(a *answer) bool { return !a.sent.Before(saved) }).byCounter()
			all := spend(t, []*client{dial(t, again.GRPC)}, before)
			admitted, over := all.withVerdict(allowed).byCounter(), 0
			for counter, n := range admitted {
				if n > outageLimit+lost[counter] {
					t.Errorf("%v: %d were admitted, of %d, and %d were not saved", counter, n, outageLimit, lost[counter])
				}
				over += max(0, n-outageLimit)
			}
			if over == 0 && !c.snapshots {
				t.Error("no request above a limit was admitted, so the loss of the counters was not tested")
			}
			record(row{
				failure: "Weir on memory killed and restarted: " + c.name, rate: 400, of: before, while: before,
				lost: fmt.Sprintf("%d of %d", over, len(before.withVerdict(allowed))), over: fmt.Sprint(over),
			})
		})
	}
}

// awaitSave waits until a process saves a snapshot.
func awaitSave(t *testing.T, file string) {
	t.Helper()
	saved := func() (at time.Time) {
		if info, err := os.Stat(file); err == nil {
			at = info.ModTime()
		}
		return at
	}
	before := saved()
	must.Until(t, "a snapshot is saved", func() bool { return saved().After(before) })
}
