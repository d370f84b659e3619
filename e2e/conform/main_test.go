// Package conform runs weir conform against Weir on each store, and against envoyproxy/ratelimit.
// It has tests only. With -update it records the results in results.json and writes
// docs/conformance.md from them:
//
//	go test ./e2e/conform -update
package conform

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

var (
	only   = flag.String("only", "", "a regular expression: run only the checks whose ids match")
	update = flag.Bool("update", false, "record the results, and write docs/conformance.md")
)

// weirBinary returns the path of the Weir under test.
var weirBinary, removeBuilt = harness.BuildOnce()

func TestMain(m *testing.M) {
	code := harness.Run(m, "conform", removeBuilt)
	if *update && code == 0 {
		if err := record(); err != nil {
			fmt.Fprintln(os.Stderr, "conform:", err)
			code = 1
		}
	}
	os.Exit(code)
}
