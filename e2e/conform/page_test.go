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
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/conform"
)

// A recordedRun is the report on one server, without what differs from run to run.
type recordedRun struct {
	Name    string         `json:"name"`   // the server's name in the table
	Server  string         `json:"server"` // what ran
	Date    string         `json:"date"`
	Commit  string         `json:"commit"` // Weir's commit
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

// keepReport keeps the report on a server for [record].
func keepReport(name, server string, report conform.Report) {
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

// groups are the headings of the tables of checks, by the beginning of the checks' ids.
var groups = []struct{ prefix, title string }{
	{"protocol", "Protocol: requests that a client may send"},
	{"semantics", "Semantics: one request at a time"},
	{"counting", "Counting: many concurrent clients"},
	{"turns", "Windows: the change from one to the next"},
	{"clients", "Clients: one must not disturb another"},
	{"crash", "Crashes: requests that could end or corrupt the service"},
}

// render returns the page for the results.
func render(runs []recordedRun) string {
	checks := checksOf(runs)
	var ran, table, faults strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&ran, "- **%s:** %s. On %s, by `weir conform` of commit %s, in %.0f s.\n", r.Name, r.Server, r.Date, r.Commit, r.Seconds)
	}
	for i, g := range groups {
		if i > 0 {
			table.WriteString("\n")
		}
		fmt.Fprintf(&table, "## %s\n\n", g.title)
		header(&table, "| check | question |", runs)
		for _, c := range checks {
			if !strings.HasPrefix(c.ID, g.prefix+".") {
				continue
			}
			fmt.Fprintf(&table, "| `%s` | %s |", c.ID, c.Asks)
			for _, r := range runs {
				fmt.Fprintf(&table, " %s |", cell(r, c.ID))
			}
			table.WriteString("\n")
		}
	}
	for _, r := range runs {
		for _, c := range r.Checks {
			if c.Outcome != conform.Fail {
				continue
			}
			e := c.Evidence[0]
			fmt.Fprintf(&faults, "- **%s**, `%s`: %s.\n  - Question: %s\n", r.Name, c.ID, e.Fault, c.Asks)
			for _, line := range [][2]string{{"Request", e.Request}, {"Answer", e.Answer}, {"Expected", e.Expected}} {
				if line[1] != "" {
					fmt.Fprintf(&faults, "  - %s: `%s`\n", line[0], line[1])
				}
			}
		}
	}
	return strings.NewReplacer("{{lead}}\n", lead(runs), "{{summary}}\n", summary(runs, checks), "{{observed}}\n", observations(runs, checks),
		"{{ran}}\n", ran.String(), "{{table}}\n", table.String(), "{{faults}}\n", faults.String()).Replace(page)
}

// checksOf returns each check of the runs once, in their order.
func checksOf(runs []recordedRun) (all []recordedTest) {
	for _, r := range runs {
		for i, c := range r.Checks {
			if !slices.ContainsFunc(all, func(o recordedTest) bool { return o.ID == c.ID }) {
				all = slices.Insert(all, min(i, len(all)), c)
			}
		}
	}
	return all
}

// header writes the first two lines of a table with a column for each run.
func header(b *strings.Builder, first string, runs []recordedRun) {
	b.WriteString(first)
	for _, r := range runs {
		fmt.Fprintf(b, " %s |", r.Name)
	}
	b.WriteString("\n" + strings.Repeat("|---", strings.Count(first, "|")-1+len(runs)) + "|\n")
}

// lead returns the sentences with the result of Weir and of envoyproxy/ratelimit.
func lead(runs []recordedRun) string {
	weir, other := failuresOf(runs[:len(runs)-1]), failuresOf(runs[len(runs)-1:])
	text := fmt.Sprintf("[`weir conform`](conform.md) found %s from Weir in %d checks, on %d kinds of store. It found %s from\nenvoyproxy/ratelimit in %d checks",
		wrong(weir.failed), weir.ran, len(runs)-1, wrong(other.failed), other.ran)
	switch other.stops {
	case 0:
	case 1:
		text += ". Any client can stop the service with the request of one of these checks"
	default:
		text += fmt.Sprintf(". Any client can stop the service with the requests of %d of these checks", other.stops)
	}
	return text + ".\n"
}

func wrong(n int) string {
	switch n {
	case 0:
		return "no wrong answer"
	case 1:
		return "1 wrong answer"
	}
	return fmt.Sprintf("%d wrong answers", n)
}

// failures are the numbers of different checks: those that ran, that failed, and after which the
// service had stopped.
type failures struct{ ran, failed, stops int }

func failuresOf(runs []recordedRun) (f failures) {
	ran, failed, stops := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range runs {
		for _, c := range r.Checks {
			if c.Outcome != conform.Skipped {
				ran[c.ID] = true
			}
			if c.Outcome == conform.Fail {
				failed[c.ID] = true
				if strings.Contains(c.Evidence[0].Fault, "any client can stop it") {
					stops[c.ID] = true
				}
			}
		}
	}
	return failures{len(ran), len(failed), len(stops)}
}

// summary returns the table with the number of checks by outcome.
func summary(runs []recordedRun, checks []recordedTest) string {
	var b strings.Builder
	header(&b, "| checks |", runs)
	for _, outcome := range []string{"pass", "**fail**", "observed", "skipped", "–"} {
		fmt.Fprintf(&b, "| %s |", map[bool]string{true: "not applicable (–)", false: outcome}[outcome == "–"])
		for _, r := range runs {
			n := 0
			for _, c := range checks {
				if cell(r, c.ID) == outcome {
					n++
				}
			}
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// observations returns the table of answers that the protocol leaves to the service.
func observations(runs []recordedRun, checks []recordedTest) string {
	var b strings.Builder
	b.WriteString("| check | observation | server |\n|---|---|---|\n")
	for _, check := range checks {
		var notes []string
		by := map[string][]string{} // the servers of a note
		for _, r := range runs {
			for _, c := range r.Checks {
				if c.ID != check.ID {
					continue
				}
				for _, note := range c.Observations {
					if by[note] == nil {
						notes = append(notes, note)
					}
					if !slices.Contains(by[note], r.Name) {
						by[note] = append(by[note], r.Name)
					}
				}
			}
		}
		for _, note := range notes {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", check.ID, note, together(by[note]))
		}
	}
	return b.String()
}

// together returns the names of servers, shorter if they are all servers or all of Weir.
func together(names []string) string {
	switch {
	case slices.Equal(names, columns):
		return "all"
	case slices.Equal(names, columns[:3]):
		return "Weir, all stores"
	}
	return strings.Join(names, "; ")
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
	b := must.Read(t, resultsFile)
	var runs []recordedRun
	must.Succeed(t, json.Unmarshal(b, &runs))
	path, err := pagePath()
	must.Succeed(t, err)
	got := must.Read(t, path)
	for _, c := range checksOf(runs) {
		if !slices.ContainsFunc(groups, func(g struct{ prefix, title string }) bool { return strings.HasPrefix(c.ID, g.prefix+".") }) {
			t.Errorf("%s is in no table of the page: add its group", c.ID)
		}
	}
	if string(got) != render(runs) {
		t.Error("docs/conformance.md differs from e2e/conform/results.json: run go test ./e2e/conform -update")
	}
}
