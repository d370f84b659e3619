// Package docs holds the documentation. Its tests check the links of every page, the index, the list of packages, and the recipes.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target := path
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(path), l[1])
			}
			info, err := os.Stat(target)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			if l[2] == "" || info.IsDir() {
				continue
			}
			there, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(anchors(string(there)), l[2]) {
				t.Errorf("%s: %s has no heading #%s", path, target, l[2])
			}
		}
	}
}

// The block of packages in CONTRIBUTING.md names folders that exist.
func TestPackagesInContributingExist(t *testing.T) {
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "## The packages\n\n```\n")
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

func TestRecipesParseAsRules(t *testing.T) {
	text, err := os.ReadFile("recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile("(?ms)^```yaml rules\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(all) < 6 {
		t.Fatalf("%d recipes: this test no longer reads the page", len(all))
	}
	for _, m := range all {
		_, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "recipe", Data: []byte(m[1])})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s\n%v %v", m[1], err, warnings)
		}
	}
}

func TestIndexLinksToEveryPage(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range all {
		if page != "README.md" && !strings.Contains(string(index), "]("+page+")") {
			t.Errorf("docs/README.md does not link to %s", page)
		}
	}
}
