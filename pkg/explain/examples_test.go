package explain_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

const root = "../../"

var (
	isRules = regexp.MustCompile(`(?m)^domain: .*(\n.*)*^descriptors:`)
	fenced  = regexp.MustCompile("(?ms)^```yaml([^\n]*)\n(.*?)^```$")
)

// examples returns the rules in the files and pages of the repository.
func examples(t *testing.T) map[string]*descriptors.Rules {
	t.Helper()
	all := map[string]*descriptors.Rules{}
	add := func(name, text string) {
		if !isRules.MatchString(text) {
			return
		}
		rules, err := rulesfile.Parse(rulesfile.File{Name: name, Data: []byte(text)})
		if err != nil {
			t.Errorf("parse the rules of %s: %v", name, err)
			return
		}
		all[name+text] = rules
	}
	for _, folder := range []string{"README.md", "envoy", "docs", "deploy"} {
		err := filepath.WalkDir(root+folder, func(path string, entry fs.DirEntry, err error) error {
			if extension := filepath.Ext(path); err != nil || entry.IsDir() || extension != ".md" && extension != ".yaml" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if strings.HasSuffix(path, ".yaml") && filepath.Base(path) != "overlay.yaml" {
				add(path, string(text))
			}
			for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(block[1], "overlay") && block[1] != " warns" { // docs/lint.md has faults on purpose
					add(path, block[2])
				}
			}
			return nil
		})
		must.Succeed(t, err)
	}
	return all
}

// requestsOf returns requests that a rule matches, and requests that differ from those in one
// entry.
func requestsOf(r *descriptors.Rule) (all [][]descriptors.Entry) {
	var fitting []descriptors.Entry
	for _, l := range r.Path() {
		e := descriptors.Entry{Key: strings.ReplaceAll(l.Key, "*", "x"), Value: strings.ReplaceAll(l.Value, "*", "x")}
		switch {
		case len(l.Values) > 0:
			e.Value = l.Values[len(l.Values)-1]
		case len(l.Prefixes) > 0:
			e.Value = l.Prefixes[0].Addr().String()
		case e.Value == "":
			e.Value = "alice"
		}
		fitting = append(fitting, e)
	}
	with := func(more ...descriptors.Entry) []descriptors.Entry {
		return append(append([]descriptors.Entry(nil), fitting...), more...)
	}
	all = append(all, fitting, fitting[:len(fitting)-1], with(descriptors.Entry{Key: "more", Value: "1"}),
		with(descriptors.Entry{Key: "release", Value: "1"}), with(descriptors.Entry{Key: "settle", Value: "1"}))
	for i := range fitting {
		other, misspelled := with(), with()
		other[i].Value += "-other"
		misspelled[i].Key = strings.ReplaceAll(misspelled[i].Key, "_", "-") + "s"
		all = append(all, other, misspelled)
	}
	return all
}

// For every example of the repository, the explanation equals the decision of a server.
func TestExplainEqualsServerForEveryExample(t *testing.T) {
	t.Parallel()
	rules, requests, seen := examples(t), 0, map[string]int{}
	for name, example := range rules {
		s := newServer(example, decide.Options{})
		for r := range example.All() {
			all := &decide.Request{Domain: r.Domain}
			for _, entries := range requestsOf(r) {
				one := decide.Descriptor{Entries: entries, Hits: 1}
				all.Descriptors = append(all.Descriptors, one)
				requests++
				if text := difference(t, s, &decide.Request{Domain: r.Domain, Descriptors: []decide.Descriptor{one}}, seen); text != "" {
					t.Errorf("%v: %s, of %s", entries, text, name)
				}
			}
			if text := difference(t, s, all, seen); text != "" {
				t.Errorf("%+v: %s, of %s", all, text, name)
			}
		}
	}
	t.Logf("%d requests for %d examples: %v", requests, len(rules), seen)
	if len(rules) < 30 || requests < 400 || seen["limited"] < 100 || seen["released"]+seen["settled"] < 10 {
		t.Errorf("only %d requests for %d examples: %v", requests, len(rules), seen)
	}
}
