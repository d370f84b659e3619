// Package failures tests Weir while its dependencies fail. Real processes are frozen, killed,
// disconnected and restarted under load, and every answer is compared with the counters in Redis.
// It has tests only.
//
// As a part of `make test`, each test takes some seconds under a small load, and asserts only
// bounds that hold on a busy machine. `make chaos` runs the tests at full length, asserts the
// bounds of docs/failure-modes.md too, and writes the measurements into docs/failure-tests.md.
package failures

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

var (
	full = flag.Bool("full", false, "run at full length, and assert strict bounds: for a machine that has nothing else to do")
	page = flag.String("page", "", "the page whose table takes what was measured; none: it is logged")
	soak = flag.Duration("soak", 10*time.Minute, "the length of the soak, with -full")
)

// weirBinary returns the path of the Weir under test.
var weirBinary, removeBuilt = harness.BuildOnce()

func TestMain(m *testing.M) { os.Exit(harness.Run(m, "failures", publish, removeBuilt)) }

// either returns the first value in a short run, and the second in a full run.
func either[T any](short, long T) T {
	if *full {
		return long
	}
	return short
}
