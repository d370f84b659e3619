package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

const root = "../.."

// The page makes no claim without a run: its table is made from the results.
func TestTableOfThePageIsTheResults(t *testing.T) {
	results, err := readResults(root)
	if err != nil || len(results) == 0 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	page := must.Read(t, pagePath(root))
	want, err := withTable(string(page), results)
	must.Succeed(t, err)
	if want != string(page) {
		t.Errorf("the table of docs/stores.md differs from docs/stores.jsonl: run make stores; want\n%s", table(results))
	}
	for _, r := range results {
		if r.Version == "" || r.Date == "" || r.Commit == "" || len(r.Columns["suite"].Passed) == 0 {
			t.Errorf("an incomplete result: %+v", r)
		}
		for name := range r.Columns {
			if !slices.Contains(order, name) {
				t.Errorf("%s has a column %q, which the table has not", r.key(), name)
			}
		}
	}
}

func TestCellNamesFailedTests(t *testing.T) {
	for want, c := range map[string]tests{
		"not run":                                {Skipped: []string{"TestA"}},
		"1 passed, 1 skipped":                    {Passed: []string{"TestA"}, Skipped: []string{"TestB"}},
		"1 passed, **failed:** `TestB`":          {Passed: []string{"TestA"}, Failed: []string{"TestB"}},
		"0 passed, **failed:** `TestA`, `TestB`": {Failed: []string{"TestA", "TestB"}},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

// runScript runs a script for sh in place of the tests.
func runScript(t *testing.T, script string) (verdicts map[string]string, events []event) {
	t.Helper()
	path := must.Write(t, t.TempDir()+"/test", "#!/bin/sh\n"+script)
	must.Succeed(t, os.Chmod(path, 0o700))
	return runTests(".", path, os.Environ(), "", "")
}

// A process that ends early has no verdict for the tests that ran.
func TestTestWithoutVerdictHasFailed(t *testing.T) {
	got, events := runScript(t, `printf '=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\npanic: test timed out\n'; exit 2`)
	if got["TestA"] != "pass" || got["TestB"] != "fail" || len(got) != 2 {
		t.Errorf("%v, want TestA passed and TestB failed", got)
	}
	if failure := failureOf(events, "TestB"); failure != "panic: test timed out" {
		t.Errorf("TestB failed with %q", failure)
	}
}

// The output of tests that run in parallel is mixed.
const mixed = `=== RUN   TestA
=== RUN   TestB
=== RUN   TestA/passes
    a_test.go:1: a log
=== NAME  TestB
    b_test.go:1: of B
=== RUN   TestA/fails
    a_test.go:2: 1|2 used,
        want 3
redis: a log
=== NAME  TestA
--- FAIL: TestA (0.00s)
    --- PASS: TestA/passes (0.00s)
    --- FAIL: TestA/fails (0.00s)
--- PASS: TestB (0.00s)
`

func TestFailureIsThatOfTheFailedTest(t *testing.T) {
	print := func(text string) []event {
		_, events := runScript(t, "cat <<'END'\n"+text+"END\n")
		return events
	}
	if got, want := failureOf(print(mixed), "TestA"), "a_test.go:2: 1|2 used, want 3"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	long := strings.Replace(mixed, "1|2", strings.Repeat("é", 1000), 1)
	if got := failureOf(print(long), "TestA"); len(got) > maxFailureBytes+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// A test that fails beside the others and passes alone is reported with its first failure.
func TestFirstFailureIsRecorded(t *testing.T) {
	dir := t.TempDir()
	write := func(path, script string) string {
		path = must.Write(t, dir+"/"+path, "#!/bin/sh\n"+script)
		must.Succeed(t, os.Chmod(path, 0o700))
		return path
	}
	for i, s := range suites {
		must.Write(t, dir+"/"+s.folder+"/output", mixed)
		write(binary("", i), `case "$*" in *"run=^TestA$ "*) printf '=== RUN   TestA\n--- PASS: TestA (0.00s)\n';; *) cat output;; esac`)
	}
	r, err := test(dir, dir, store{name: "Redis"}, write("server", "echo v=1.2"))
	must.Succeed(t, err)
	if r.failed() {
		t.Errorf("failed: %s", r.summary())
	}
	want := "passed only when run alone: `TestA`, which first failed with `a_test.go:2: 1\\|2 used, want 3`"
	if got := table([]*result{r}); !strings.Contains(got, want) {
		t.Errorf("the table is %q, want %q in it", got, want)
	}
}

// The table has every column, and every test a column.
func TestTableHasEveryColumnAndTest(t *testing.T) {
	for _, s := range suites {
		for _, c := range s.columns {
			if !slices.Contains(order, c.name) {
				t.Errorf("the table has no column %q", c.name)
			}
		}
		if last := s.columns[len(s.columns)-1]; last.tests.String() != "" {
			t.Errorf("the last column of %s does not take the rest", s.folder)
		}
	}
	if !strings.Contains(table(nil), "| suite | Cluster |") {
		t.Errorf("the head is %q", table(nil))
	}
}
