package weir

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each row of docs/failure-modes.md, except the measured ones, names tests, and these tests exist.
func TestFailureModesNameExistingTests(t *testing.T) {
	b, err := os.ReadFile("docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(b), "## Measured")
	declared, rows := declaredTests(t), 0
	test := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| what fails |") || strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		named := test.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test holds: %s", line)
		}
		for _, name := range named {
			if !declared[name[1]] {
				t.Errorf("the failure modes name %s, which does not exist", name[1])
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d rows: this test has gone blind", rows)
	}
}
