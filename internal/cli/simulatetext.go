package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/internal/terminal"
	"github.com/weir-rls/weir/pkg/recording"
)

// Bounds of the tables in a terminal. The JSON has everything.
const (
	maxLimitRows = 50
	maxKeyRows   = 20
)

// simulationText returns the tables of a simulation.
func simulationText(r *simulate.Result, color bool) string {
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
	if len(r.Clients) > 1 {
		addTable(t, "CLIENTS\tATTEMPTS\tRETRIES\tDENIED\tSHARE\tRECOVERED\tGAVE_UP\tWAITING", r.Clients, len(r.Clients), "",
			func(c simulate.Client) []any {
				return []any{c.Model, c.Attempts, c.Retries, c.Denied, percent(c.Denied, c.Attempts), c.Recovered, c.GaveUp, c.Waiting}
			})
	}
	writeComparison(t, r)
	writeKeys(t, r)
	addTable(t, "WITHOUT_RULE\tDOMAIN\tDESCRIPTORS", r.UnmatchedPaths, len(r.UnmatchedPaths), "",
		func(p simulate.UnmatchedPath) []any { return []any{p.Path, p.Domain, p.Descriptors} })
	if len(r.CannotMatch) > 0 {
		addTable(t, "CANNOT_MATCH\tHASHED_KEY\tDESCRIPTORS", r.CannotMatch, maxLimitRows, "rules",
			func(m recording.UnmatchableRule) []any { return []any{m.Path, m.Key, m.Descriptors} })
		t.printf("These rules match by value, and the recording has only hashes: whom they deny is unknown. Record with rules that " +
			"have the values, for example in shadow mode.")
	}
	return t.text.String()
}

// tables collects lines and tables.
type tables struct {
	text  strings.Builder
	color bool
}

func (t *tables) printf(format string, args ...any) { fmt.Fprintf(&t.text, format+"\n", args...) }

// addTable adds a table of the first values after an empty line, and the number of those that it
// omits. It adds nothing without values.
func addTable[T any](t *tables, header string, all []T, maximum int, what string, cells func(T) []any) {
	if len(all) == 0 {
		return
	}
	rows := []string{header}
	for _, one := range all[:min(len(all), maximum)] {
		rows = append(rows, terminal.Row(cells(one)...))
	}
	first, rest, _ := strings.Cut(terminal.Table(rows...), "\n")
	if t.color {
		first = bold.Render(first)
	}
	t.text.WriteString("\n" + first + "\n" + rest)
	if n := len(all) - maximum; n > 0 {
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
	label := cmp.Or(l.Path, "(no rule)")
	if l.Name != "0" {
		label += " " + l.Name
	}
	return label
}

func writeLimits(t *tables, r *simulate.Result) {
	header := "RULE\tLIMIT\tREQUESTS\tDENIED\tSHARE\tKEYS\tKEYS_DENIED\tNEAR\tPEAK"
	if r.Sample != nil {
		header += "\tALL_KEYS_DENIED"
	}
	addTable(t, header, r.WorstFirst(), maxLimitRows, "limits", func(l *simulate.LimitResult) []any {
		limit, peak := l.Text, "-"
		if l.Mode != "enforced" {
			limit += " (" + l.Mode + ")"
		}
		if l.Peak != nil {
			peak = fmt.Sprint(l.Peak.Used)
		}
		cells := []any{limitLabel(l), limit, l.Requests, l.Denied, percent(l.Denied, l.Requests), l.Keys, l.KeysDenied, l.NearLimit, peak}
		if l.KeysDeniedEstimate != nil {
			cells = append(cells, estimateText(l.KeysDeniedEstimate))
		}
		return cells
	})
}

func writeComparison(t *tables, r *simulate.Result) {
	compared := slices.DeleteFunc(r.WorstFirst(), func(l *simulate.LimitResult) bool {
		return l.Comparison == nil || len(l.Comparison.Algorithms) == 0
	})
	if len(compared) == 0 {
		return
	}
	addTable(t, "RULE\tMAX\tFIXED_WINDOW\tBURST\tSLIDING_LOG\tBURST\tFUNNEL\tBURST", compared, maxLimitRows, "limits",
		func(l *simulate.LimitResult) []any {
			cells := []any{limitLabel(l), l.RequestsPerUnit}
			for _, a := range l.Comparison.Algorithms {
				switch {
				case a.Error != "":
					cells = append(cells, "-", "-")
				case a.Own:
					cells = append(cells, fmt.Sprintf("%d*", a.Denied), a.Burst)
				default:
					cells = append(cells, a.Denied, a.Burst)
				}
			}
			return cells
		})
	t.printf("If each limit were the only one: the requests that each algorithm would deny (* the present one), and the most hits of a key that it admits within one window's length.")
}

func writeKeys(t *tables, r *simulate.Result) {
	type deniedKey struct {
		simulate.TopKey
		limit *simulate.LimitResult
	}
	var all []deniedKey
	for _, l := range r.Limits {
		for _, k := range l.TopKeys {
			all = append(all, deniedKey{k, l})
		}
	}
	slices.SortStableFunc(all, func(a, b deniedKey) int { return cmp.Compare(b.Denied, a.Denied) })
	addTable(t, "KEY\tRULE\tREQUESTS\tDENIED\tSHUT_OUT", all, maxKeyRows, "keys", func(k deniedKey) []any {
		shut := time.Duration(k.ShutOutSeconds * float64(time.Second)).Round(100 * time.Millisecond)
		return []any{k.Key, limitLabel(k.limit), k.Requests, k.Denied, shut}
	})
}
