package suggest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
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

// Text returns the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "recording: %s requests", terminal.Grouped(r.Requests))
	if r.Requests > 0 {
		const layout = "2006-01-02 15:04:05"
		fmt.Fprintf(&b, " in %v, %s to %s UTC", r.Last.Sub(r.First).Round(time.Millisecond), r.First.UTC().Format(layout),
			r.Last.UTC().Format(layout))
	}
	fmt.Fprintf(&b, "; %s of them under no rule or path below\n", terminal.Grouped(r.Unmatched))
	for _, w := range r.Warnings {
		b.WriteString("- " + w + "\n")
	}
	for _, rule := range r.Rules {
		rule.writeText(&b)
	}
	for _, domain := range r.domains() {
		fmt.Fprintf(&b, "\nAs rules, without the other settings of a rule:\n\n%s", r.yaml(domain, false))
	}
	return b.String()
}

func (r *Rule) writeText(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s, domain %s", r.Path, r.Domain)
	if r.Source != "" {
		fmt.Fprintf(b, " (%s)", r.Source)
	}
	if len(r.Windows) == 0 {
		fmt.Fprintf(b, ": no suggestion, %s\n", r.Note)
		return
	}
	fmt.Fprintf(b, "\n  requests %s, keys %s", terminal.Grouped(r.Requests), r.Keys.text())
	for _, n := range []struct {
		name string
		n    int64
	}{{"peeks", r.Peeks}, {"refunds", r.Refunds}, {"denied when recorded", r.Denied}, {"left out because they carry a limit", r.Overridden}} {
		if n.n > 0 {
			fmt.Fprintf(b, ", %s %s", n.name, terminal.Grouped(n.n))
		}
	}
	b.WriteString("\n\n  The smallest limit that denies no recorded request:\n")
	r.writeSmallest(b)
	b.WriteString("\n  Limit → keys hit, requests denied:\n")
	r.writeEffects(b)
	for _, rec := range r.Recommendations {
		rec.writeText(b, r.Sample)
	}
	if r.Note != "" {
		fmt.Fprintf(b, "\n  No recommendation: %s.\n", r.Note)
	}
}

// table writes rows of cells that are separated by tabs, each behind two spaces.
func table(b *strings.Builder, rows []string) {
	for i := range rows {
		rows[i] += "\t"
	}
	for _, line := range terminal.Columns(rows, tabwriter.AlignRight) {
		b.WriteString("  " + line + "\n")
	}
}

func (a *Algorithm) name() string {
	name := a.Algorithm
	if a.Settings != "" {
		name += " " + a.Settings
	}
	if a.Current != nil {
		name += " *"
	}
	return name
}

func (w *Window) title() string {
	title := strings.TrimPrefix(w.name(), "window of ")
	if w.TooShort {
		title += " (!)"
	}
	return title
}

func (r *Rule) writeSmallest(b *strings.Builder) {
	algorithms, hasCurrent, short := windowed(), false, false
	rows := []string{"WINDOW\t" + strings.ToUpper(strings.Join(algorithms, "\t"))}
	for _, w := range r.Windows {
		short = short || w.TooShort
		row := w.title()
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
				if a.Current != nil {
					text, hasCurrent = text+" *", true
				}
			}
			row += "\t" + text
		}
		rows = append(rows, row)
	}
	table(b, rows)
	if hasCurrent {
		b.WriteString("  * the algorithm and the window of the rule\n")
	}
	if short {
		b.WriteString("  (!) the recording is shorter than the window, so a whole window may need a higher limit\n")
	}
}

func (r *Rule) writeEffects(b *strings.Builder) {
	for _, w := range r.Windows {
		if len(w.Algorithms[0].Effects) == 0 {
			continue
		}
		header := "LIMIT " + strings.ToUpper(w.per())
		if w.TooShort {
			header += " (!)"
		}
		for _, a := range w.Algorithms {
			header += "\t" + strings.ToUpper(a.name()) + ": KEYS\tDENIED"
		}
		rows := []string{header}
		for _, e := range w.Algorithms[0].Effects {
			row := terminal.Grouped(e.Limit)
			for _, a := range w.Algorithms {
				row += a.effect(e.Limit)
			}
			rows = append(rows, row)
		}
		table(b, rows)
		b.WriteByte('\n')
	}
}

// effect returns the cells of a limit.
func (a *Algorithm) effect(limit int64) string {
	for _, e := range a.Effects {
		if e.Limit == limit {
			return "\t" + e.Keys.text() + "\t" + e.Denied.text()
		}
	}
	return "\t-\t-"
}

func (r *Recommendation) writeText(b *strings.Builder, sample float64) {
	fmt.Fprintf(b, "  Keys hit at each limit of %s %s (bars in a logarithmic scale):\n", r.Algorithm, r.window.per())
	r.writeCurve(b, sample)
	fmt.Fprintf(b, "\n  Recommended: %s of %s %s", r.Algorithm, terminal.Grouped(r.Limit), r.window.per())
	if r.Name != "" {
		fmt.Fprintf(b, ", name %s", r.Name)
	}
	fmt.Fprintf(b, ". It hits %s", r.Keys.withNoun("key"))
	if r.Denied != nil {
		fmt.Fprintf(b, " and denies %s", r.Denied.withNoun("request"))
	}
	b.WriteString(" of the recording.\n")
	for _, reason := range r.Reasons {
		b.WriteString("  - " + reason + "\n")
	}
	for i := range r.Outliers {
		o, needs := &r.Outliers[i], "more than any limit"
		if o.Needs != nil {
			needs = terminal.Grouped(*o.Needs)
		}
		if i == 0 {
			b.WriteString("  The keys that it hits, and the limit that each needs:\n")
		}
		fmt.Fprintf(b, "    %s  %s\n", terminal.Printable(o.Key), needs)
	}
	if more := r.Keys.N - int64(len(r.Outliers)); more > 0 && len(r.Outliers) > 0 {
		fmt.Fprintf(b, "    and %s more\n", terminal.Grouped(more))
	}
}

// maxBars is the number of bars of a curve, and barWidth the length of the longest.
const maxBars, barWidth = 12, 40

// writeCurve writes bars of the keys hit at some limits, the recommended limit among them.
func (r *Recommendation) writeCurve(b *strings.Builder, sample float64) {
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
	fmt.Fprintf(b, "  %*s  keys hit\n", width, "limit")
	for _, limit := range limits {
		keys, mark := at(limit), ""
		if limit == r.Limit {
			mark = "  ← recommended"
		}
		bar := strings.Repeat("█", int(math.Ceil(barWidth*math.Log1p(float64(keys))/math.Log1p(float64(most)))))
		if bar != "" {
			bar += " "
		}
		fmt.Fprintf(b, "  %*s  %s%s%s\n", width, terminal.Grouped(limit), bar, terminal.Grouped(int64(math.Round(float64(keys)/sample))), mark)
	}
}
