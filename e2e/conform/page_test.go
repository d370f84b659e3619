package conform

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/pkg/conform"
)

// A recordedRun is the report on one server, without what differs from run to run.
type recordedRun struct {
	Name    string         `json:"name"`   // of the server, in the table
	Server  string         `json:"server"` // what ran
	Date    string         `json:"date"`
	Commit  string         `json:"commit"` // of Weir
	Seconds float64        `json:"seconds"`
	Checks  []recordedTest `json:"checks"`
}

type recordedTest struct {
	ID           string             `json:"id"`
	Asks         string             `json:"asks"`
	Outcome      conform.Outcome    `json:"outcome"`
	Reason       string             `json:"reason,omitempty"`
	Evidence     []conform.Evidence `json:"evidence,omitempty"`
	Observations []string           `json:"observations,omitempty"`
}

var seen struct {
	sync.Mutex
	runs []recordedRun
}

// saw keeps the report on a server for [record].
func saw(name, server string, report conform.Report) {
	run := recordedRun{Name: name, Server: server, Date: report.Started.Format(time.DateOnly), Seconds: report.Seconds}
	for _, c := range report.Checks {
		run.Checks = append(run.Checks, recordedTest{c.ID, c.Asks, c.Outcome, c.Reason, c.Evidence, c.Observations})
	}
	seen.Lock()
	defer seen.Unlock()
	seen.runs = append(seen.runs, run)
}

const resultsFile = "results.json"

//go:embed page.tmpl
var page string

// pagePath returns the path of the page with the results.
func pagePath() (string, error) {
	root, err := harness.Root()
	return filepath.Join(root, "docs", "conformance.md"), err
}

// record writes the results of this run and the page.
func record() error {
	if len(seen.runs) < len(columns) {
		return fmt.Errorf("only %d of %d servers were graded: -update needs all tests, REDIS_SERVER and INCUMBENT", len(seen.runs), len(columns))
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	for i := range seen.runs {
		seen.runs[i].Commit = strings.TrimSpace(string(commit))
	}
	slices.SortFunc(seen.runs, func(a, b recordedRun) int { return order(a.Name) - order(b.Name) })
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(seen.runs); err != nil {
		return err
	}
	if err := os.WriteFile(resultsFile, b.Bytes(), 0o644); err != nil {
		return err
	}
	path, err := pagePath()
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(render(seen.runs)), 0o644)
}

var columns = []string{"Weir, memory", "Weir, Redis", "Weir, Redis Cluster of 3", "envoyproxy/ratelimit, Redis"}

func order(name string) int { return slices.Index(columns, name) }

// render returns the page for the results.
func render(runs []recordedRun) string {
	var ran, table, faults, observed strings.Builder
	var notes []string
	by := map[string][]string{} // the servers of a note
	for _, r := range runs {
		fmt.Fprintf(&ran, "- **%s:** %s. On %s, by `weir conform` of commit %s, in %.0f s.\n", r.Name, r.Server, r.Date, r.Commit, r.Seconds)
	}
	table.WriteString("| check | question |")
	for _, r := range runs {
		fmt.Fprintf(&table, " %s |", r.Name)
	}
	table.WriteString("\n|---|---|" + strings.Repeat("---|", len(runs)) + "\n")
	var ids []recordedTest
	for _, r := range runs {
		for i, c := range r.Checks {
			if !slices.ContainsFunc(ids, func(o recordedTest) bool { return o.ID == c.ID }) {
				ids = slices.Insert(ids, min(i, len(ids)), c)
			}
		}
	}
	for _, id := range ids {
		fmt.Fprintf(&table, "| `%s` | %s |", id.ID, id.Asks)
		for _, r := range runs {
			fmt.Fprintf(&table, " %s |", cell(r, id.ID))
		}
		table.WriteString("\n")
	}
	for _, r := range runs {
		for _, c := range r.Checks {
			for _, o := range c.Observations {
				note := "`" + c.ID + "`: " + o
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
				if !slices.Contains(by[note], r.Name) {
					by[note] = append(by[note], r.Name)
				}
			}
			if c.Outcome == conform.Fail {
				e := c.Evidence[0]
				fmt.Fprintf(&faults, "- **%s**, `%s`: %s.\n", r.Name, c.ID, e.Fault)
				for _, line := range [][2]string{{"Request", e.Request}, {"Answer", e.Answer}, {"Expected", e.Expected}} {
					if line[1] != "" {
						fmt.Fprintf(&faults, "  - %s: `%s`\n", line[0], line[1])
					}
				}
			}
		}
	}
	for _, note := range notes {
		fmt.Fprintf(&observed, "- %s (%s).\n", note, strings.Join(by[note], "; "))
	}
	return strings.NewReplacer("{{observed}}\n", observed.String(), "{{ran}}\n", ran.String(), "{{table}}\n", table.String(), "{{faults}}\n", faults.String()).Replace(page)
}

func cell(r recordedRun, id string) string {
	i := slices.IndexFunc(r.Checks, func(c recordedTest) bool { return c.ID == id })
	if i < 0 {
		return "–"
	}
	switch c := r.Checks[i]; c.Outcome {
	case conform.Fail:
		return "**fail**"
	case conform.Observation:
		return "observed"
	default:
		return string(c.Outcome)
	}
}

// The page shows the recorded results, and nothing else.
func TestPageShowsTheRecordedResults(t *testing.T) {
	if *update {
		t.Skip("-update writes the page")
	}
	b, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	var runs []recordedRun
	if err := json.Unmarshal(b, &runs); err != nil {
		t.Fatal(err)
	}
	path, err := pagePath()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != render(runs) {
		t.Error("docs/conformance.md differs from e2e/conform/results.json: run go test ./e2e/conform -update")
	}
}
