package suggest

import (
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/weir-rls/weir/internal/terminal"
)

// text returns an estimate with its interval, if it has one.
func (e Estimate) text() string {
	if e.Low == e.N && e.High == e.N {
		return terminal.Grouped(e.N)
	}
	return fmt.Sprintf("%s (%s to %s)", terminal.Grouped(e.N), terminal.Grouped(e.Low), terminal.Grouped(e.High))
}

// withNoun returns an estimate with its noun.
func (e Estimate) withNoun(noun string) string {
	if e.text() == "1" {
		return "1 " + noun
	}
	return e.text() + " " + noun + "s"
}

//go:embed text.tmpl
var textFile string

// textTemplate is parsed at its first use, because a server has none.
var textTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("text").Funcs(template.FuncMap{
		"num": terminal.Grouped, "printable": terminal.Printable, "estimate": Estimate.text, "count": Estimate.withNoun,
		"length": func(r *Report) time.Duration { return r.Last.Sub(r.First).Round(time.Millisecond) },
		"per":    func(r *Recommendation) string { return r.window.per() },
		"more":   func(r *Recommendation) int64 { return max(0, r.Keys.N-int64(len(r.Outliers))) },

		"smallest": (*RuleReport).smallestText, "candidates": (*RuleReport).candidatesText, "curve": (*Recommendation).curveText,
		"domains": (*Report).domains, "yaml": (*Report).yaml,
	}).Parse(textFile))
})

// Text returns the report for a terminal.
func (r *Report) Text() (string, error) {
	var b strings.Builder
	err := textTemplate().Execute(&b, r)
	return b.String(), err
}

// table returns rows of cells that are separated by tabs, each behind two spaces.
func table(rows []string) string {
	for i := range rows {
		rows[i] += "\t"
	}
	return "  " + strings.Join(terminal.Columns(rows, tabwriter.AlignRight), "\n  ") + "\n"
}

func (a *AlgorithmReport) name() string {
	name := a.Algorithm
	if a.Settings != "" {
		name += " " + a.Settings
	}
	if a.CurrentLimit != nil {
		name += " *"
	}
	return name
}

// mark marks a window that is longer than the recording.
func (w *WindowReport) mark() string {
	if w.TooShort {
		return " (!)"
	}
	return ""
}

func (r *RuleReport) smallestText() string {
	algorithms, hasCurrent, short := windowed(), false, false
	rows := []string{"WINDOW\t" + strings.ToUpper(strings.Join(algorithms, "\t"))}
	for _, w := range r.Windows {
		short = short || w.TooShort
		row := w.duration() + w.mark()
		for _, name := range algorithms {
			text := ""
			for _, a := range w.Algorithms {
				if a.Algorithm != name {
					continue
				}
				if text != "" {
					text += " / "
				}
				if a.Smallest == nil {
					text += "none"
				} else {
					text += terminal.Grouped(*a.Smallest)
				}
				if a.CurrentLimit != nil {
					text, hasCurrent = text+" *", true
				}
			}
			row += "\t" + text
		}
		rows = append(rows, row)
	}
	text := table(rows)
	if hasCurrent {
		text += "  * the algorithm and the window of the rule\n"
	}
	if short {
		text += "  (!) the recording is shorter than the window, so a whole window may need a higher limit\n"
	}
	return text
}

func (r *RuleReport) candidatesText() (text string) {
	for _, w := range r.Windows {
		if len(w.Algorithms[0].Candidates) == 0 {
			continue
		}
		header := "LIMIT " + strings.ToUpper(w.per()) + w.mark()
		for _, a := range w.Algorithms {
			header += "\t" + strings.ToUpper(a.name()) + ": KEYS\tDENIED"
		}
		rows := []string{header}
		for _, e := range w.Algorithms[0].Candidates {
			row := terminal.Grouped(e.Limit)
			for _, a := range w.Algorithms {
				row += a.candidate(e.Limit)
			}
			rows = append(rows, row)
		}
		text += table(rows) + "\n"
	}
	return text
}

// candidate returns the cells of a limit.
func (a *AlgorithmReport) candidate(limit int64) string {
	for _, e := range a.Candidates {
		if e.Limit == limit {
			return "\t" + e.Keys.text() + "\t" + e.Denied.text()
		}
	}
	return "\t-\t-"
}

// maxBars is the number of bars of a curve, and barWidth the length of the longest.
const maxBars, barWidth = 12, 40

// curveText returns bars of the keys denied at some limits, the recommended limit among them.
func (r *Recommendation) curveText(sample float64) string {
	var limits []int64
	curve := r.algorithm.Curve
	step := (len(curve) + maxBars - 1) / maxBars
	for i, p := range curve {
		if i%step == 0 || i == len(curve)-1 {
			limits = append(limits, p.Limit)
		}
	}
	if !slices.Contains(limits, r.Limit) {
		limits = append(limits, r.Limit)
	}
	slices.Sort(limits)
	at := func(limit int64) int64 { return r.algorithm.dist.above(limit) }
	width, most := len("limit"), max(1, at(limits[0]))
	for _, limit := range limits {
		width = max(width, len(terminal.Grouped(limit)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %*s  keys denied\n", width, "limit")
	for _, limit := range limits {
		keys, mark := at(limit), ""
		if limit == r.Limit {
			mark = "  ← recommended"
		}
		bar := strings.Repeat("█", int(math.Ceil(barWidth*math.Log1p(float64(keys))/math.Log1p(float64(most)))))
		if bar != "" {
			bar += " "
		}
		fmt.Fprintf(&b, "  %*s  %s%s%s\n", width, terminal.Grouped(limit), bar, terminal.Grouped(int64(math.Round(float64(keys)/sample))), mark)
	}
	return b.String()
}
