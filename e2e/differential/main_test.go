// Package differential holds Weir to the incumbent, envoyproxy/ratelimit itself: both run side by side on the same
// files and the same environment, each on a Redis of its own, are asked the same and must answer the same. It has tests
// only.
//
// Where the two may differ is data: the table exceptions for what the random requests meet, and the table differences
// for what is asked on purpose, with both answers and the reason. What `go install` gives is the incumbent of January
// 2026; the judge is what it did in July (DESIGN.md and the notes on its behaviour), so a part of both tables is its
// own change.
//
// INCUMBENT names the binary; `tools/ensure incumbent` builds it.
package differential

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

var (
	seed     = flag.Uint64("seed", 1, "of the random rules and requests")
	requests = flag.Int("requests", 2000, "to each configuration")
	weir     = flag.String("weir", "", "a binary of Weir in place of the one built from this tree")
)

// built is Weir, built once for all tests.
var built, removeBuilt = harness.BuildOnce()

// weirBinary is the Weir that is tested.
func weirBinary() (string, error) {
	if *weir != "" {
		return *weir, nil
	}
	return built()
}

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
	if _, missing := findIncumbent(); missing != nil {
		// A skipped test is silent unless somebody asks with -v. This is not to go unseen.
		fmt.Fprintln(os.Stderr, "differential: THE COMPARISON WITH THE INCUMBENT DID NOT RUN:", missing)
	}
	return code
}

func findIncumbent() (string, error) {
	name := os.Getenv("INCUMBENT")
	if name == "" {
		return "", fmt.Errorf("INCUMBENT is not set: eval \"$(tools/ensure incumbent)\" builds it")
	}
	return exec.LookPath(name)
}

// incumbentBinary skips the test where there is none, and fails it where there must be one: INCUMBENT_REQUIRED=1, or
// INCUMBENT names what is not there.
func incumbentBinary(t *testing.T) string {
	t.Helper()
	path, err := findIncumbent()
	switch {
	case err == nil:
		return path
	case os.Getenv("INCUMBENT_REQUIRED") == "1" || os.Getenv("INCUMBENT") != "":
		t.Fatal("the incumbent is required: ", err)
	default:
		t.Skip("NOT COMPARED with the incumbent: ", err)
	}
	return ""
}
