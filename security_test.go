package weir

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// The tests that these pages name exist.
func TestPagesNameExistingTests(t *testing.T) {
	there := declaredTests(t)
	for page, least := range map[string]int{"docs/security-tests.md": 20, "docs/stores.md": 10} {
		text := must.Read(t, page)
		named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`").FindAllSubmatch(text, -1)
		if len(named) < least {
			t.Errorf("%s names only %d tests: the pattern no longer finds them", page, len(named))
		}
		for _, name := range named {
			if !there[string(name[1])] {
				t.Errorf("%s names %s, which does not exist", page, name[1])
			}
		}
	}
}

// declaredTests returns the names of the tests of all modules of this repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(source, -1) {
			there[string(found[1])] = true
		}
		return err
	})
	must.Succeed(t, err)
	return there
}

// The page that compares Weir with envoyproxy/ratelimit names the commit that the tests run.
func TestSwitchingNamesThePinnedRatelimit(t *testing.T) {
	ensure := must.Read(t, "tools/ensure")
	page := must.Read(t, "docs/switching.md")
	pin := regexp.MustCompile(`(?m)^incumbent_version=.*[.-](\d{14})-([0-9a-f]{12})$`).FindSubmatch(ensure)
	if pin == nil {
		t.Fatal("tools/ensure has no incumbent_version")
	}
	date, err := time.Parse("20060102150405", string(pin[1]))
	must.Succeed(t, err)
	if want := "[commit " + string(pin[2]) + "](https://github.com/envoyproxy/ratelimit/commit/" + string(pin[2]) + ") of " + date.Format("2 January 2006"); !strings.Contains(string(page), want) {
		t.Errorf("docs/switching.md does not have %q", want)
	}
}
