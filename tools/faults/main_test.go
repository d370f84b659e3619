package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A mutation of a line that has changed no longer applies. `make faults` runs tests on every
// mutation and takes about an hour.
func TestEveryMutationApplies(t *testing.T) {
	mutations, err := parse(list)
	must.Succeed(t, err)
	for _, m := range mutations {
		if _, err := m.apply("../.."); err != nil {
			t.Errorf("%s: %s: %v", m.file, m.what, err)
		}
	}
}

// Without the test that faults.txt names, `make faults` still finds one, but needs more time.
func TestEveryNamedTestExists(t *testing.T) {
	mutations, err := parse(list)
	must.Succeed(t, err)
	for _, m := range mutations {
		if m.seenBy.name != "" && !exists(t, m.seenBy) {
			t.Errorf("%s: %s: no test %s", m.file, m.what, m.seenBy)
		}
	}
}

// exists reports whether a package has the function of a test, and for a subtest of traces the file
// with the trace.
func exists(t *testing.T, test testName) bool {
	if _, trace, ok := strings.Cut(test.name, "/traces/"); ok {
		trace, _, _ = strings.Cut(trace, "/")
		if _, err := os.Stat(filepath.Join("../../pkg/limiters/limiterstest/testdata", trace+".txt")); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob(filepath.Join("../..", test.dir, "*_test.go"))
	must.Succeed(t, err)
	function, _, _ := strings.Cut(test.name, "/")
	for _, file := range files {
		source := must.Read(t, file)
		if strings.Contains(string(source), "\nfunc "+function+"(") {
			return true
		}
	}
	return false
}

func TestFirstFailureNamesPackageAndSubtest(t *testing.T) {
	for _, test := range []struct{ out, want string }{
		{"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n        --- FAIL: TestA/b/c (0s)\n    --- FAIL: TestA/d (0s)\nFAIL\nFAIL\t" + module + "/pkg/x\t0.2s\n", "./pkg/x TestA/b/c"},
		{"ok  \t" + module + "/pkg/w\t0.1s\n--- FAIL: TestAB (0.1s)\nFAIL\nFAIL\t" + module + "/pkg/x\t0.2s\n", "./pkg/x TestAB"},
		{"panic: test timed out after 4m0s\n", "panic: test timed out after 4m0s"},
		{"signal: killed\n", "a test binary that ended early"},
	} {
		if got := firstFailure(test.out); got != test.want {
			t.Errorf("firstFailure(%q) = %q, want %q", test.out, got, test.want)
		}
	}
}
