package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
)

var buildDir string // where the binary of Weir goes; gone when the tests are over

// binary is Weir, built once for all tests.
var binary = sync.OnceValues(func() (string, error) { return harness.BuildWeir(context.Background(), buildDir) })

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
	if buildDir, err = os.MkdirTemp("", "weir-e2e-"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(buildDir)) }()
	return m.Run(), nil
}
