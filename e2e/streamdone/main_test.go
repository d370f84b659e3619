// Package streamdone tests concurrency leases and reservations behind a real Envoy, which calls Weir again when a stream ends.
// A recorder between Envoy and Weir keeps each call, and can lose it. The package has tests only.
package streamdone

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

// binary is Weir, built once for all tests.
var binary, removeBinary = harness.BuildOnce()

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "streamdone:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if _, err := harness.FindEnvoy(); err != nil {
		return 0, err // said once, not by every test
	}
	if err := flag.Set("test.parallel", "64"); err != nil { // these tests wait, they do not compute
		return 0, err
	}
	defer func() { err = errors.Join(err, removeBinary()) }()
	return m.Run(), nil
}
