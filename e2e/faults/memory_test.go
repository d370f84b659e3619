package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

// A process with its counters in memory is killed and replaced. Without a snapshot, every limit may be spent once more. With a
// snapshot, the new process has the counters of the last save.
func TestSnapshotRestoresCountersAfterKill(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		snapshots bool
	}{{"no MEMORY_SNAPSHOT", false}, {"MEMORY_SNAPSHOT every second", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := harness.WeirOptions{Rules: writeFile(t, filepath.Join(t.TempDir(), "rules.yaml"), rules(outageLimit))}
			file := filepath.Join(t.TempDir(), "snapshot")
			if c.snapshots {
				o.Env = []string{"MEMORY_SNAPSHOT=" + file, "MEMORY_SNAPSHOT_INTERVAL=1s"}
			}
			w := launchWeir(t, o)
			users := 60
			l := &load{rate: 400, clients: []*client{dial(t, w.GRPC)}, pick: func(n int) counter {
				return counter{actions[n%len(actions)].name, n / len(actions) % (users / len(actions))}
			}}
			l.start(t)
			until(t, "half of all is spent", func() bool { return l.answered() >= users*outageLimit/2 })
			kill(t, w.Process)
			before := l.end()
			saved := time.Time{}
			if c.snapshots {
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				saved = info.ModTime()
			}
			again := launchWeir(t, o)
			t.Cleanup(func() { _, _ = again.Stop() })

			// Acknowledged and not saved. A save visits one key after another, so it takes a while until the file exists.
			lost := before.withVerdict(allowed).filter(func(a *answer) bool { return a.end.After(saved.Add(-500 * time.Millisecond)) }).byCounter()
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
				fault: "Weir on memory killed and restarted: " + c.name, rate: 400, of: before, while: before,
				lost: fmt.Sprintf("%d of %d", over, len(before.withVerdict(allowed))), over: fmt.Sprint(over),
			})
		})
	}
}
