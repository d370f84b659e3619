package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

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

// A process that ends early has no verdict for the tests that ran.
func TestTestWithoutVerdictHasFailed(t *testing.T) {
	dir := t.TempDir()
	script := dir + "/test"
	text := "#!/bin/sh\nprintf '=== RUN   TestA\\n--- PASS: TestA (0.00s)\\n=== RUN   TestB\\npanic\\n'; exit 2\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	got := runTests(dir, script, os.Environ(), "", "")
	if got["TestA"] != passed || got["TestB"] != failed || len(got) != 2 {
		t.Errorf("%v, want TestA passed and TestB failed", got)
	}
}

// The table has every column, and every test a column.
func TestColumns(t *testing.T) {
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
