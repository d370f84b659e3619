// Package faults shows what Weir does while what it stands on fails: real processes are frozen, killed, cut off and
// restarted under load, and every answer is held against what Redis then holds. It has tests only.
//
// As a part of `make test` each test is some seconds long, under a small load, and asserts what holds on a busy machine.
// `make chaos` runs them at full length, asserts the bounds of docs/failure-modes.md too, and writes there what it measured.
package faults

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

var (
	full = flag.Bool("full", false, "run at full length, and assert strict bounds: for a machine that has nothing else to do")
	page = flag.String("page", "", "the page whose table takes what was measured; none: it is logged")
	weir = flag.String("weir", "", "a binary of Weir in place of the one built from this tree")
	soak = flag.Duration("soak", 10*time.Minute, "the length of the soak, with -full")
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
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	defer func() { err = errors.Join(err, removeBuilt()) }()
	return m.Run(), publish()
}

// either is what is to be used: in a short run, or in a full one.
func either[T any](short, long T) T {
	if *full {
		return long
	}
	return short
}
