// Package differential compares Weir with envoyproxy/ratelimit. Both run with the same rules files
// and environment, each on a Redis of its own. They receive the same requests and must give the
// same answers. The package has tests only.
//
// Two tables list where the answers may differ, with the reasons: exceptions for random requests,
// and differences for chosen requests. The binary is envoyproxy/ratelimit of January 2026, the
// newest that `go install` builds. Weir follows the version of July 2026, so some entries are
// changes of envoyproxy/ratelimit itself.
//
// The variable INCUMBENT names the binary of envoyproxy/ratelimit; `tools/ensure incumbent` builds
// it.
package differential

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

var (
	seed     = flag.Uint64("seed", 1, "the seed of the random rules and requests")
	requests = flag.Int("requests", 2000, "the number of requests per configuration")
)

// weirBinary returns the path of the Weir under test.
var weirBinary, removeBuilt = harness.BuildOnce()

func TestMain(m *testing.M) {
	code := harness.Run(m, "differential", removeBuilt)
	if _, missing := harness.FindRatelimit(); missing != nil {
		// Without -v a skipped test prints nothing.
		fmt.Fprintln(os.Stderr, "differential: THE COMPARISON WITH envoyproxy/ratelimit DID NOT RUN:", missing)
	}
	os.Exit(code)
}
