package rulesfile_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// A lintSection is a section of docs/lint.md or a row of its table of corrections: an id and its
// examples.
type lintSection struct {
	id, text            string
	rules, warns, fixed string
	overlay             bool // warns and fixed are overlays of rules
}

func lintSections(t *testing.T) (all []lintSection) {
	t.Helper()
	page := must.Read(t, root+"docs/lint.md")
	_, body, _ := strings.Cut(string(page), "\n## Faults\n")
	for _, part := range strings.Split(body, "\n### ")[1:] {
		id, text, _ := strings.Cut(part, "\n")
		s := lintSection{id: id, text: text}
		for _, m := range regexp.MustCompile("(?ms)^```yaml ([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			kind, overlay := strings.CutSuffix(m[1], " overlay")
			s.overlay = s.overlay || overlay
			switch kind {
			case "rules":
				s.rules = m[2]
			case "warns":
				s.warns = m[2]
			case "fixed":
				s.fixed = m[2]
			}
		}
		all = append(all, s)
	}
	return append(all, lintRows(t, string(page))...)
}

// oneLine has, for each warning of the table "Corrections in one line", the rules into which the
// cells are put.
var oneLine = map[string]string{
	"address-form":      "descriptors: [{key: ip, %s, rate_limit: {unlimited: true}}]",
	"beside-unlimited":  "descriptors: [{key: a, rate_limit: %s}]",
	"duplicate-key":     "descriptors: [{key: a, rate_limit: %s}]",
	"duplicate-name":    "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: each}}, \n{key: b, rate_limit: {unit: day, requests_per_unit: 1, %s}}]",
	"key-without-value": "descriptors:\n- key: a\n  rate_limit: {unlimited: true}\n  %s",
	"metadata-key":      "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}, %s}]",
	"missing-requests":  "descriptors: [{key: a, rate_limit: %s}]",
	"octal-number":      "descriptors: [{key: a, rate_limit: {unit: day, %s}}]",
	"prefix-as-value":   "descriptors: [{key: ip, %s, rate_limit: {unlimited: true}}]",
	"surrounding-space": "descriptors: [{key: a, %s, rate_limit: {unlimited: true}}]",
	"unknown-ignore":    "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 0}}] %s",
	"unknown-replaces":  "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1, name: each_address}}, \n{key: b, rate_limit: {unlimited: true, %s}}]",
	"unused-ignore":     "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}] %s",
}

// lintRows returns the rows of the table "Corrections in one line" as sections. A cell without code
// is an empty line.
func lintRows(t *testing.T, page string) (all []lintSection) {
	t.Helper()
	_, table, _ := strings.Cut(page, "\n## Corrections in one line\n")
	code := regexp.MustCompile("^`(.*)`$")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| .+ \\| (.+) \\| (.+) \\|$").FindAllStringSubmatch(table, -1) {
		rules := oneLine[m[1]]
		if rules == "" {
			t.Errorf("oneLine lacks %s", m[1])
		}
		s := lintSection{id: m[1]}
		for to, cell := range map[*string]string{&s.warns: m[2], &s.fixed: m[3]} {
			line := ""
			if found := code.FindStringSubmatch(cell); found != nil {
				line = found[1]
			}
			*to = "domain: shop\n" + strings.Replace(rules, "%s", line, 1) + "\n"
		}
		all = append(all, s)
	}
	if len(all) != len(oneLine) {
		t.Errorf("%d rows, want %d", len(all), len(oneLine))
	}
	return all
}

// lintComments returns, by id, the last cell of the table of warnings: the line on which a comment
// silences the warning, or n/a.
func lintComments(t *testing.T) map[string]string {
	t.Helper()
	page := must.Read(t, root+"docs/lint.md")
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[([a-z-]+)\]\(#([a-z-]+)\) \| .+ \| (.+) \|$`).FindAllStringSubmatch(string(page), -1) {
		want := m[1]
		if oneLine[want] != "" {
			want = "corrections-in-one-line"
		}
		if m[2] != want {
			t.Errorf("the row of %s links to %s, want %s", m[1], m[2], want)
		}
		all[m[1]] = m[3]
	}
	var rows []string
	for id := range all {
		rows = append(rows, id)
	}
	slices.Sort(rows)
	if want := rulesfile.WarningIDs(); !slices.Equal(rows, want) {
		t.Errorf("the table of warnings has %q, want %q", rows, want)
	}
	return all
}

// find returns the faults and warnings of an example.
func (s *lintSection) find(text string) (all []rulesfile.Diagnostic, err error) {
	o := rulesfile.Options{ReplicasUnknown: true}
	rules := text
	if s.overlay {
		rules = s.rules
		if o.Overlay, err = rulesfile.ParseOverlay(rulesfile.File{Name: "overlay", Data: []byte(text)}); err != nil {
			return nil, err
		}
	}
	_, all, err = rulesfile.ParseWith(o, rulesfile.File{Name: "rules", Data: []byte(rules)})
	if faults, ok := errors.AsType[rulesfile.Faults](err); ok {
		return faults, nil
	}
	return all, err
}

// Every id has a section, or a row of the table of corrections. Its example has that diagnostic
// alone, and the corrected example has none. A comment silences a warning.
func TestLintPageHasEveryID(t *testing.T) {
	var ids []string
	comments := lintComments(t)
	for _, s := range lintSections(t) {
		ids = append(ids, s.id)
		found, err := s.find(s.warns)
		if err != nil || len(found) != 1 || found[0].ID != s.id {
			t.Errorf("%s: its example has %v, %v", s.id, found, err)
			continue
		}
		if after, err := s.find(s.fixed); err != nil || len(after) != 0 || s.fixed == "" {
			t.Errorf("%s: its corrected example has %v, %v", s.id, after, err)
		}
		silenceable := comments[s.id] != "" && comments[s.id] != "n/a"
		lines := strings.Split(s.warns, "\n")
		lines[found[0].Line-1] += " # weir:ignore " + s.id
		after, err := s.find(strings.Join(lines, "\n"))
		if err != nil || silenceable != (len(after) == 0) {
			t.Errorf("%s: the page says silenceable: %v, and with a comment there are %v, %v, want %v", s.id, silenceable, after, err, len(after) == 0)
		}
	}
	slices.Sort(ids)
	if want := slices.Sorted(slices.Values(slices.Concat(rulesfile.WarningIDs(), rulesfile.FaultIDs))); !slices.Equal(ids, want) {
		t.Errorf("the sections are %q, want %q", ids, want)
	}
	if sorted := rulesfile.WarningIDs(); !slices.IsSorted(sorted) {
		t.Errorf("%q are not sorted", sorted)
	}
}
