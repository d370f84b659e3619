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
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	code := m.Run()
	if err := removeBuilt(); err != nil {
		fmt.Fprintln(os.Stderr, "differential:", err)
		code = 1
	}
	if _, missing := harness.FindRatelimit(); missing != nil {
		// Without -v a skipped test prints nothing.
		fmt.Fprintln(os.Stderr, "differential: THE COMPARISON WITH envoyproxy/ratelimit DID NOT RUN:", missing)
	}
	return code
}

// ratelimitBinary returns the path of envoyproxy/ratelimit. Without a binary it skips the test, or
// fails it if INCUMBENT is set or INCUMBENT_REQUIRED is 1.
func ratelimitBinary(t *testing.T) string {
	t.Helper()
	path, err := harness.FindRatelimit()
	switch {
	case err == nil:
		return path
	case os.Getenv("INCUMBENT_REQUIRED") == "1" || os.Getenv("INCUMBENT") != "":
		t.Fatal("no binary of envoyproxy/ratelimit: ", err)
	default:
		t.Skip("NOT COMPARED with envoyproxy/ratelimit: ", err)
	}
	return ""
}
