package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A result is a line of docs/stores.jsonl: the tests that ran on one server.
type result struct {
	Store   string `json:"store"`
	Version string `json:"version"`
	Source  string `json:"source"`
	System  string `json:"system"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`

	Columns map[string]tests `json:"columns"`
	// Again are tests that failed beside the others, and passed alone.
	Again []string `json:"again,omitempty"`
	// FirstFailures has what each of them reported when it failed. Older results have none.
	FirstFailures map[string]string `json:"first_failures,omitempty"`
}

// tests are the names of the tests of a column, by their verdicts.
type tests struct {
	Passed  []string `json:"passed,omitempty"`
	Skipped []string `json:"skipped,omitempty"`
	Failed  []string `json:"failed,omitempty"`
}

// order is the order of the columns in the table.
var order = []string{"suite", "Cluster", "Sentinel", "TLS", "refused commands", "failures", "failures under load"}

// add adds the verdicts of a suite.
func (r *result) add(s suite, verdicts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(verdicts)) {
		at := slices.IndexFunc(s.columns, func(c column) bool { return c.tests.MatchString(name) })
		column := s.columns[at].name
		t := r.Columns[column]
		switch verdicts[name] {
		case "pass":
			t.Passed = append(t.Passed, name)
		case "skip":
			t.Skipped = append(t.Skipped, name)
		default:
			t.Failed = append(t.Failed, name)
		}
		r.Columns[column] = t
	}
}

func (r *result) summary() string {
	var all []string
	for _, name := range order {
		all = append(all, name+" "+r.Columns[name].String())
	}
	return strings.Join(all, "; ")
}

// String returns the text of a cell.
func (t tests) String() string {
	if len(t.Passed) == 0 && len(t.Failed) == 0 {
		return "not run"
	}
	text := fmt.Sprintf("%d passed", len(t.Passed))
	if len(t.Skipped) > 0 {
		text += fmt.Sprintf(", %d skipped", len(t.Skipped))
	}
	if len(t.Failed) > 0 {
		text += ", **failed:** `" + strings.Join(t.Failed, "`, `") + "`"
	}
	return text
}

// failed reports whether a test failed, also alone.
func (r *result) failed() bool {
	for _, t := range r.Columns {
		if len(t.Failed) > 0 {
			return true
		}
	}
	return false
}

func (r *result) key() string { return r.Store + " " + r.Version + " " + r.Source }

func recordsPath(root string) string { return filepath.Join(root, "docs", "stores.jsonl") }
func pagePath(root string) string    { return filepath.Join(root, "docs", "stores.md") }

func readResults(root string) ([]*result, error) {
	text, err := os.ReadFile(recordsPath(root))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []*result
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	for decoder.More() {
		r := &result{}
		if err := decoder.Decode(r); err != nil {
			return nil, fmt.Errorf("line %d of %s: %w", len(all)+1, recordsPath(root), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// publish replaces the results of the servers that ran, and writes the table. Results of other
// servers stay.
func publish(root string, ran []*result) error {
	old, err := readResults(root)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(ran, func(r *result) bool { return r == nil })
	for _, r := range old {
		if !slices.ContainsFunc(all, func(other *result) bool { return other.key() == r.key() }) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *result) int { return strings.Compare(a.key(), b.key()) })
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, r := range all {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	if err := os.WriteFile(recordsPath(root), text.Bytes(), 0o644); err != nil {
		return err
	}
	return writeTable(root, all)
}

func writeTable(root string, all []*result) error {
	page, err := os.ReadFile(pagePath(root))
	if err != nil {
		return err
	}
	changed, err := withTable(string(page), all)
	if err != nil {
		return err
	}
	return os.WriteFile(pagePath(root), []byte(changed), 0o644)
}

const (
	begin = "<!-- stores: make stores -->\n"
	end   = "<!-- end -->\n"
)

// withTable returns the page with the table of the results.
func withTable(page string, all []*result) (string, error) {
	before, rest, found := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return "", fmt.Errorf("docs/stores.md has no %q and %q", begin, end)
	}
	return before + begin + table(all) + end + after, nil
}

func table(all []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| store | source of the build | %s | run |\n|%s\n", strings.Join(order, " | "), strings.Repeat("---|", len(order)+3))
	for _, r := range all {
		fmt.Fprintf(&b, "| %s %s | %s |", r.Store, r.Version, r.Source)
		for _, name := range order {
			fmt.Fprintf(&b, " %s |", r.Columns[name])
		}
		fmt.Fprintf(&b, " %s, %s, %s%s |\n", r.Date, r.Commit, r.System, r.again())
	}
	return b.String()
}

// inCode makes a text fit for a code span in a table.
var inCode = strings.NewReplacer("`", "'", "|", `\|`)

// again returns the text about the tests that passed only alone.
func (r *result) again() string {
	if len(r.Again) == 0 {
		return ""
	}
	var all []string
	for _, name := range r.Again {
		text := "`" + name + "`"
		if failure := r.FirstFailures[name]; failure != "" {
			text += ", which first failed with `" + inCode.Replace(failure) + "`"
		}
		all = append(all, text)
	}
	return "; passed only when run alone: " + strings.Join(all, ", ")
}
