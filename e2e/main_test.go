package e2e_test

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
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if _, err := harness.FindEnvoy(); err != nil {
		return 0, err // said once, not by every test
	}
	if err := flag.Set("test.parallel", "12"); err != nil { // these tests wait, they do not compute
		return 0, err
	}
	defer func() { err = errors.Join(err, removeBinary()) }()
	return m.Run(), nil
}
