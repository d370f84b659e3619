package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/offline/simulate"
)

// Bounds of the tables in a terminal. The JSON has everything.
const (
	maxLimitRows = 50
	maxKeyRows   = 20
)

// writeSimulation writes the tables of a simulation.
func writeSimulation(w io.Writer, r *simulate.Result, color bool) error {
	t := &tables{color: color}
	if r.Synthetic != "" {
		t.printf("load      %s", terminal.Printable(r.Synthetic))
	}
	t.printf("requests  %d in %v: allowed %d, denied %d (%s)", r.Requests, r.To.Sub(r.From).Round(time.Millisecond), r.Allowed,
		r.Denied, percent(r.Denied, r.Requests))
	if r.Failed > 0 {
		t.printf("failed    %d requests; the first: %s", r.Failed, terminal.Printable(r.FirstFailure))
	}
	if r.Unmatched > 0 {
		t.printf("unmatched %d requests are under no rule", r.Unmatched)
	}
	if known := r.Recorded.Allowed + r.Recorded.Denied; known > 0 {
		t.printf("recorded  allowed %d, denied %d; newly denied %d, newly allowed %d", r.Recorded.Allowed, r.Recorded.Denied,
			r.Recorded.NewlyDenied, r.Recorded.NewlyAllowed)
	}
	if s := r.Sample; s != nil {
		t.printf("sampled   %g of all keys; in all traffic: %s requests, %s denied", s.Share, estimateText(&s.Requests), estimateText(&s.Denied))
	}
	if len(r.Clients) > 1 {
		i := r.Interval.DeniedShare
		t.printf("clients   %.1f %% to %.1f %% of attempts are denied, depending on how clients react", 100*i.Low, 100*i.High)
	}
	for _, warning := range r.Warnings {
		t.printf("warning   %s", warning)
	}
	writeLimits(t, r)
	writeClients(t, r)
	writeComparison(t, r)
	writeKeys(t, r)
	writeUnmatched(t, r)
	writeCannotMatch(t, r)
	_, err := io.WriteString(w, t.text.String())
	return err
}

// tables collects lines and tables.
type tables struct {
	text  strings.Builder
	color bool
}

func (t *tables) printf(format string, args ...any) { fmt.Fprintf(&t.text, format+"\n", args...) }

// table adds a table after an empty line. It has nothing without rows.
func (t *tables) table(header string, rows []string) {
	if len(rows) == 0 {
		return
	}
	first, rest, _ := strings.Cut(terminal.Table(append([]string{header}, rows...)...), "\n")
	if t.color {
		first = bold.Render(first)
	}
	t.text.WriteString("\n" + first + "\n" + rest)
}

func (t *tables) omitted(n int, what string) {
	if n > 0 {
		t.printf("… and %d further %s: see -o json", n, what)
	}
}

func percent(part, whole int64) string {
	if whole == 0 {
		return "0.0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func estimateText(e *simulate.Estimate) string {
	return fmt.Sprintf("%.0f (%.0f to %.0f)", e.Value, e.Low, e.High)
}

// limitLabel names a limit in a table.
func limitLabel(l *simulate.LimitResult) string {
	label := terminal.Printable(cmp.Or(l.Path, "(no rule)"))
	if l.Name != "0" {
		label += " " + terminal.Printable(l.Name)
	}
	return label
}

func writeLimits(t *tables, r *simulate.Result) {
	all := r.WorstFirst()
	var rows []string
	for _, l := range all[:min(len(all), maxLimitRows)] {
		mode := ""
		if l.Mode != "enforced" {
			mode = " (" + l.Mode + ")"
		}
		peak := "-"
		if l.Peak != nil {
			peak = fmt.Sprint(l.Peak.Used)
		}
		row := fmt.Sprintf("%s\t%s%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s", limitLabel(l), l.Text, mode, l.Requests, l.Denied,
			percent(l.Denied, l.Requests), l.Keys, l.KeysDenied, l.NearLimit, peak)
		if l.KeysDeniedEstimate != nil {
			row += "\t" + estimateText(l.KeysDeniedEstimate)
		}
		rows = append(rows, row)
	}
	header := "RULE\tLIMIT\tREQUESTS\tDENIED\tSHARE\tKEYS\tKEYS_DENIED\tNEAR\tPEAK"
	if r.Sample != nil {
		header += "\tALL_KEYS_DENIED"
	}
	t.table(header, rows)
	t.omitted(len(all)-len(rows), "limits")
}

func writeClients(t *tables, r *simulate.Result) {
	if len(r.Clients) < 2 {
		return
	}
	var rows []string
	for _, c := range r.Clients {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d", c.Model, c.Attempts, c.Retries, c.Denied,
			percent(c.Denied, c.Attempts), c.Recovered, c.GaveUp, c.Waiting))
	}
	t.table("CLIENTS\tATTEMPTS\tRETRIES\tDENIED\tSHARE\tRECOVERED\tGAVE_UP\tWAITING", rows)
}

func writeComparison(t *tables, r *simulate.Result) {
	var rows []string
	n := 0
	for _, l := range r.WorstFirst() {
		if l.Comparison == nil || len(l.Comparison.Algorithms) == 0 {
			continue
		}
		n++
		if n > maxLimitRows {
			continue
		}
		row := fmt.Sprintf("%s\t%d", limitLabel(l), l.RequestsPerUnit)
		for _, a := range l.Comparison.Algorithms {
			mark := ""
			if a.Own {
				mark = "*"
			}
			if a.Error != "" {
				row += "\t-\t-"
				continue
			}
			row += fmt.Sprintf("\t%d%s\t%d", a.Denied, mark, a.Burst)
		}
		rows = append(rows, row)
	}
	if n == 0 {
		return
	}
	t.table("RULE\tMAX\tFIXED_WINDOW\tBURST\tSLIDING_LOG\tBURST\tFUNNEL\tBURST", rows)
	t.omitted(n-len(rows), "limits")
	t.printf("Each limit alone, at the same numbers: denied requests (* now), and the most hits of a key admitted in any span of one window.")
}

func writeKeys(t *tables, r *simulate.Result) {
	type row struct {
		l *simulate.LimitResult
		k *simulate.TopKey
	}
	var all []row
	for i := range r.Limits {
		for j := range r.Limits[i].TopKeys {
			all = append(all, row{&r.Limits[i], &r.Limits[i].TopKeys[j]})
		}
	}
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(b.k.Denied, a.k.Denied) })
	var rows []string
	for _, one := range all[:min(len(all), maxKeyRows)] {
		shut := time.Duration(one.k.ShutOutSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%d\t%v", terminal.Printable(one.k.Key), limitLabel(one.l), one.k.Requests,
			one.k.Denied, shut))
	}
	t.table("KEY\tRULE\tREQUESTS\tDENIED\tSHUT_OUT", rows)
	t.omitted(len(all)-len(rows), "keys")
}

func writeUnmatched(t *tables, r *simulate.Result) {
	var rows []string
	for _, p := range r.UnmatchedPaths {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d", terminal.Printable(p.Path), terminal.Printable(p.Domain), p.Descriptors))
	}
	t.table("WITHOUT_RULE\tDOMAIN\tDESCRIPTORS", rows)
}

func writeCannotMatch(t *tables, r *simulate.Result) {
	var rows []string
	for _, m := range r.CannotMatch[:min(len(r.CannotMatch), maxLimitRows)] {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d", terminal.Printable(m.Path), terminal.Printable(m.Key), m.Descriptors))
	}
	if len(rows) == 0 {
		return
	}
	t.table("CANNOT_MATCH\tHASHED_KEY\tDESCRIPTORS", rows)
	t.omitted(len(r.CannotMatch)-len(rows), "rules")
	t.printf("These rules match by value, and the recording has only hashes: whom they deny is unknown. Record with rules that " +
		"have the values, for example in shadow mode.")
}
