package weir

import (
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// Each failure of docs/failure-modes.md has one row in docs/failure-tests.md, each row there
// belongs to a failure, and the tests that it names exist.
func TestFailureModesNameExistingTests(t *testing.T) {
	failures := must.Read(t, "docs/failure-modes.md")
	page := must.Read(t, "docs/failure-tests.md")
	tests, _, measured := strings.Cut(string(page), "\n## Measured\n")
	if !measured {
		t.Fatal("docs/failure-tests.md has no section Measured")
	}
	declared, named := declaredTests(t), rowsByFailure(t, tests)
	test := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	for failure, row := range named {
		names := test.FindAllStringSubmatch(row, -1)
		if len(names) == 0 {
			t.Errorf("no test of %q", failure)
		}
		for _, name := range names {
			if !declared[name[1]] {
				t.Errorf("docs/failure-tests.md names %s, which does not exist", name[1])
			}
		}
	}
	rows := rowsByFailure(t, string(failures))
	if len(rows) < 50 {
		t.Errorf("%d failures: this test checks too little", len(rows))
	}
	for failure, row := range rows {
		if regexp.MustCompile(`\|\s*\|`).MatchString(row) {
			t.Errorf("the row of %q has an empty cell", failure)
		}
		if named[failure] == "" {
			t.Errorf("docs/failure-tests.md has no row for %q", failure)
		}
		delete(named, failure)
	}
	for failure := range named {
		t.Errorf("docs/failure-tests.md has a row for %q, which docs/failure-modes.md lacks", failure)
	}
}

// rowsByFailure returns the rows of all tables by their first column, without the header rows.
func rowsByFailure(t *testing.T, text string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.SplitN(line, "|", 3)
		if len(cells) < 3 || cells[0] != "" || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| failure |") {
			continue
		}
		failure := strings.TrimSpace(cells[1])
		if all[failure] != "" {
			t.Errorf("two rows for %q", failure)
		}
		all[failure] = cells[2]
	}
	return all
}
