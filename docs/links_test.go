// Package docs holds the documentation. Its tests check the links of every page, the index, the
// list of packages, and the recipes.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const root = ".."

func pages(t *testing.T) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{".git", ".tools", "dist", "testdata"}, d.Name())):
			return fs.SkipDir
		case strings.HasSuffix(path, ".md") && !strings.Contains(path, "bench"+string(filepath.Separator)):
			all = append(all, path)
		}
		return nil
	})
	if err != nil || len(all) < 20 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link    = regexp.MustCompile(`\]\(([^)#:\s]*)(?:#([^)\s]+))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names that GitHub gives to headings.
func anchors(text string) (all []string) {
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}

func TestLinksResolve(t *testing.T) {
	headings := map[string][]string{} // anchors of each page that a link names
	for _, path := range pages(t) {
		text := must.Read(t, path)
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target := path
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(path), l[1])
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: the target of a link is missing: %v", path, err)
				continue
			}
			if l[2] == "" || info.IsDir() {
				continue
			}
			if headings[target] == nil {
				there := must.Read(t, target)
				headings[target] = anchors(string(there))
			}
			if !slices.Contains(headings[target], l[2]) {
				t.Errorf("%s: %s has no heading #%s", path, target, l[2])
			}
		}
	}
}

// The block of packages in CONTRIBUTING.md names folders that exist.
func TestPackagesInContributingExist(t *testing.T) {
	text := must.Read(t, root+"/CONTRIBUTING.md")
	_, block, _ := strings.Cut(string(text), "## Find the package\n\n```\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("CONTRIBUTING.md has no block of packages")
	}
	var parent string
	for line := range strings.Lines(block) {
		name, _, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
		if strings.HasPrefix(line, " ") {
			name = parent + name
		} else {
			parent = name
		}
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || !info.IsDir() {
			t.Errorf("CONTRIBUTING.md: no folder %s", name)
		}
	}
}

// maxRecordWords bounds the words of a decision record outside of tables, so that a reader has it
// on one page.
const maxRecordWords = 450

func TestDecisionRecordsAreShort(t *testing.T) {
	records, err := filepath.Glob("adr/0*.md")
	if err != nil || len(records) < 10 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	word, row := regexp.MustCompile(`\S*[\pL\pN]\S*`), regexp.MustCompile(`(?m)^\|.*$`)
	for _, path := range records {
		text := must.Read(t, path)
		if words := len(word.FindAllString(row.ReplaceAllString(string(text), ""), -1)); words > maxRecordWords {
			t.Errorf("%s has %d words, want at most %d", path, words, maxRecordWords)
		}
	}
}

var exampleOfRules = regexp.MustCompile("(?ms)^```yaml([^\n]*)\n([^`]*^domain:.*?)^```$")

// weir check --strict is silent about every example of rules, and about the rules files.
// docs/lint.md has examples of warnings, and a test of its own.
func TestExamplesHaveNoWarning(t *testing.T) {
	examples := map[string]string{}
	for _, path := range pages(t) {
		text := must.Read(t, path)
		for _, m := range exampleOfRules.FindAllStringSubmatchIndex(string(text), -1) {
			if info := string(text[m[2]:m[3]]); !strings.Contains(info, "overlay") && !strings.Contains(info, "warns") {
				examples[fmt.Sprintf("%s:%d", path, 1+strings.Count(string(text[:m[0]]), "\n"))] = string(text[m[4]:m[5]])
			}
		}
	}
	for _, path := range []string{"envoy/rules.yaml", "deploy/k8s/base/rules.yaml"} {
		text := must.Read(t, filepath.Join(root, path))
		examples[path] = string(text)
	}
	n := 0
	for name, text := range examples {
		file := rulesfile.File{Name: name, Data: []byte(text)}
		if _, err := rulesfile.ParseOverlay(file); err == nil {
			continue
		}
		n++
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{ReplicasUnknown: true}, file)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: got error %v, warnings %v, want neither", file.Name, err, warnings)
		}
	}
	if n < 60 {
		t.Errorf("only %d examples: this test no longer finds them", n)
	}
}

// e2e runs the recipes on an Envoy. This test reports faults and warnings of their rules, with the
// page.
func TestRecipesParseAsRules(t *testing.T) {
	for _, page := range recipes(t) {
		text := must.Read(t, page)
		m := regexp.MustCompile("(?ms)^```yaml rules.yaml\n(.*?)^```$").FindSubmatch(text)
		if m == nil {
			t.Errorf("%s: no rules.yaml", page)
			continue
		}
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: page, Data: m[1]})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: got error %v, warnings %v, want neither", page, err, warnings)
		}
	}
}

// recipes returns the pages in recipes, without their index.
func recipes(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("recipes/*.md")
	if err != nil || len(all) < 8 {
		t.Fatalf("%d recipes, %v", len(all), err)
	}
	return slices.DeleteFunc(all, func(page string) bool { return page == "recipes/README.md" })
}

func TestRecipesAreListedAndWarnOfUnsafeEnvoys(t *testing.T) {
	index := must.Read(t, "recipes/README.md")
	for _, page := range recipes(t) {
		if !strings.Contains(string(index), "]("+filepath.Base(page)+")") {
			t.Errorf("recipes/README.md does not link to %s", page)
		}
		text := must.Read(t, page)
		// An Envoy that calls Weir at the beginning and at the end of a request can crash.
		if strings.Contains(string(text), "apply_on_stream_done") != strings.Contains(string(text), "CVE-2026-26330") {
			t.Errorf("%s: want a warning of CVE-2026-26330 if and only if its rate_limits have apply_on_stream_done", page)
		}
	}
}

var (
	sectionEnvoy = regexp.MustCompile("(?ms)^## Envoy\n(.*?)^## ")
	unnamedYAML  = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
)

// The section Envoy of a recipe shows parts of its listener, which the tests in e2e run, and links
// to it.
func TestRecipesShowPartsOfTheirListener(t *testing.T) {
	for _, page := range recipes(t) {
		text := must.Read(t, page)
		name := strings.TrimSuffix(filepath.Base(page), ".md") + ".yaml"
		listener, err := os.ReadFile(filepath.Join("recipes", "listeners", name))
		if err != nil {
			t.Error(err)
			continue
		}
		section := sectionEnvoy.FindStringSubmatch(string(text))
		if section == nil || !strings.Contains(section[1], "](listeners/"+name+")") {
			t.Errorf("%s: want a section Envoy with a link to listeners/%s", page, name)
			continue
		}
		parts := unnamedYAML.FindAllStringSubmatch(section[1], -1)
		if !slices.ContainsFunc(parts, func(part []string) bool { return strings.HasPrefix(part[1], "rate_limits:\n") }) {
			t.Errorf("%s: the section Envoy does not show rate_limits", page)
		}
		for _, part := range parts {
			if !containsIndented(string(listener), part[1]) {
				t.Errorf("%s: the listener does not contain\n%s", page, part[1])
			}
		}
	}
}

// containsIndented reports whether text contains the lines of part, all with the same additional
// indentation.
func containsIndented(text, part string) bool {
	for indent := ""; len(indent) < 80; indent += " " {
		if strings.Contains("\n"+text, "\n"+regexp.MustCompile("(?m)^(.)").ReplaceAllString(part, indent+"$1")) {
			return true
		}
	}
	return false
}

func TestIndexesLinkToEveryPage(t *testing.T) {
	for _, folder := range []string{".", "adr"} {
		index := must.Read(t, filepath.Join(folder, "README.md"))
		all, err := filepath.Glob(filepath.Join(folder, "*.md"))
		must.Succeed(t, err)
		for _, page := range all {
			if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
				t.Errorf("docs/%s/README.md does not link to %s", folder, name)
			}
		}
	}
}

var (
	firstCell = regexp.MustCompile(`(?m)^\| (\[[^|]*) \|`)
	namedLink = regexp.MustCompile(`\[([^\]]*)\]\(([^)#]*)\)`)
)

// The tables of the index name each page by its title, so that a reader can find the title that a
// search has shown.
func TestIndexNamesPagesByTheirTitles(t *testing.T) {
	index := must.Read(t, "README.md")
	n := 0
	for _, cell := range firstCell.FindAllStringSubmatch(string(index), -1) {
		for _, l := range namedLink.FindAllStringSubmatch(cell[1], -1) {
			page, err := os.ReadFile(l[2])
			if err != nil {
				t.Error(err)
				continue
			}
			n++
			if title, _, _ := strings.Cut(string(page), "\n"); title != "# "+l[1] {
				t.Errorf("docs/README.md: the link to %s is %q, and its title is %q", l[2], l[1], title)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d links: this test no longer finds them", n)
	}
}
