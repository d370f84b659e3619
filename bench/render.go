package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed page.md
var page string

// publish writes docs/benchmarks.md and its pictures from the results. It replaces {{NAME}} in
// page.md.
func publish(r *results, docs string) error {
	pictures := filepath.Join(docs, "benchmarks")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	parts := map[string]string{
		"summary": summary(r), "targets": targetTable(r), "machine": machines(r),
		"ratelimit": "`" + strings.Join(ratelimitSettings[0].env, "` `") + "`",
		"gogc":      fmt.Sprint(bareGOGC),
	}
	for name, all := range map[string][]row{"rows": rows(), "scale": scaleRows()} {
		b := &strings.Builder{}
		for _, row := range all {
			if !slices.ContainsFunc(r.all, func(m *measurement) bool { return m.Row == row.name }) {
				continue
			}
			fmt.Fprintf(b, "### %s\n\n%s\n\n%s\n", row.title, row.about, table(r, &row))
			picture := draw(r, &row)
			if picture == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(pictures, row.name+".svg"), []byte(picture), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(b, "![%s](benchmarks/%s.svg)\n\n", row.title, row.name)
		}
		parts[name] = cmp.Or(b.String(), "Not measured yet.\n")
	}
	text := page
	for name, part := range parts {
		text = strings.ReplaceAll(text, "{{"+name+"}}", strings.TrimSpace(part))
	}
	return os.WriteFile(filepath.Join(docs, "benchmarks.md"), []byte(text), 0o644)
}

// summary returns the results of three rows in sentences: the rates and the CPU of "one", and how
// "five" and "single" differ from it. A value of Weir is over all algorithms.
func summary(r *results) string {
	over := func(store string, of func(subject) (float64, bool)) string {
		values := make([]float64, len(algorithms))
		for i, algorithm := range algorithms {
			values[i], _ = of(subject(store + "/" + algorithm))
		}
		low, high := figure(slices.Min(values)), figure(slices.Max(values))
		if low == high {
			return low
		}
		return low + " to " + high
	}
	median := func(row, store string, of value) string {
		return over(store, func(s subject) (float64, bool) { return r.median(row, s, 0, of) })
	}
	relative := func(row string) string {
		return over("redis", func(s subject) (float64, bool) {
			return r.ratio(row, perSecond, point{subject: s}, point{subject: ratelimit})
		})
	}
	under := func(row string, of value) (float64, bool) { return r.median(row, ratelimit, 0, of) }
	server, _ := under("one", serverCPU)
	redis, measured := under("one", redisCPU)
	if !measured {
		return "Not measured yet.\n"
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, "On Redis, with one descriptor and 64 requests in flight, Weir makes %s decisions a second: %s times as many as\n"+
		"envoyproxy/ratelimit. A decision takes %s µs of Weir's CPU and %s µs of Redis' CPU; under envoyproxy/ratelimit it takes %s µs and %s µs.\n"+
		"With counters in memory, Weir makes %s decisions a second. All measurements ran on two cores, which the load client shares.\n"+
		"Their speed varies from one run to another, so compare servers within a table, and not the numbers of two tables.\n",
		median("one", "redis", perSecond), relative("one"), median("one", "redis", serverCPU), median("one", "redis", redisCPU),
		figure(server), figure(redis), median("one", "memory", perSecond))
	_, five := under("five", perSecond)
	alone, single := under("single", redisCPU)
	if five && single {
		fmt.Fprintf(b, "\nThe advantage depends on the load. With five descriptors, Weir makes %s times as many decisions as envoyproxy/ratelimit. With one\n"+
			"request at a time, it makes %s times as many, and a decision takes %s µs of Redis' CPU instead of %s µs.\n",
			relative("five"), relative("single"), median("single", "redis", redisCPU), figure(alone))
	}
	return b.String()
}

// figure returns a number below 1,000,000, rounded for a sentence.
func figure(x float64) string {
	switch {
	case x >= 1000:
		return fmt.Sprintf("%.0f,000", x/1000)
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// machines lists the machine, the date and the rows of each run.
func machines(r *results) string {
	var runs []string
	seen := map[string][]string{}
	for _, m := range r.all {
		key := m.Run[:10] + ": " + m.Machine
		if !slices.Contains(runs, key) {
			runs = append(runs, key)
		}
		if !slices.Contains(seen[key], m.Row) {
			seen[key] = append(seen[key], m.Row)
		}
	}
	b := &strings.Builder{}
	for _, key := range runs {
		fmt.Fprintf(b, "- %s (%s)\n", key, strings.Join(seen[key], ", "))
	}
	return b.String()
}

// A column of a table.
type column struct {
	name   string
	figure value
}

var columns = []column{
	{"requests/s", perSecond},
	{"CPU server, µs", serverCPU},
	{"CPU Redis, µs", redisCPU},
	{"CPU Envoy, µs", func(m *measurement) float64 { return m.EnvoyCPU }},
	{"p50, µs", p50}, {"p99, µs", p99},
	{"p99.9, µs", func(m *measurement) float64 { return m.P999 }},
	{"allocations/request", func(m *measurement) float64 { return m.Allocs }},
	{"MB server", func(m *measurement) float64 { return m.ServerMB }},
	{"MB Redis", func(m *measurement) float64 { return m.RedisMB }},
	{"share over limit", func(m *measurement) float64 { return m.OverPart }},
	{"errors", func(m *measurement) float64 { return float64(m.Errors) }},
	{"CPU client, µs", func(m *measurement) float64 { return m.ClientCPU }},
	{"value", benchmarkValue},
	{"time, s", seconds},
	{"CPU, s", func(m *measurement) float64 { return m.CPUSeconds }},
	{"peak MB", peakMB},
}

// table returns the medians of a row, without columns that are 0 everywhere.
func table(r *results, row *row) string {
	type entry struct {
		s subject
		x float64
	}
	var entries []entry
	for _, m := range r.all {
		if e := (entry{m.Subject, m.X}); m.Row == row.name && !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		if row.x == "" || a.s == b.s {
			return 0
		}
		return strings.Compare(string(a.s), string(b.s))
	})
	used := slices.DeleteFunc(slices.Clone(columns), func(c column) bool {
		return !slices.ContainsFunc(entries, func(e entry) bool {
			v, _ := r.median(row.name, e.s, e.x, c.figure)
			return v > 0
		})
	})
	b := &strings.Builder{}
	head := []string{cmp.Or(row.first, "server")}
	if row.x != "" {
		head = append(head, row.x)
	}
	for _, c := range used {
		name := c.name
		if row.gobench != nil {
			name = row.gobench.unit
		}
		head = append(head, name)
	}
	if row.alternates {
		to := cmp.Or(string(row.baseline), "Weir without")
		head = append(head, "CPU server, relative to "+to+" (95 %)", "CPU Redis, relative to "+to+" (95 %)")
	}
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat("---|", len(head)))
	for _, e := range entries {
		cells := []string{string(e.s)}
		if row.x != "" {
			cells = append(cells, strconv.FormatFloat(e.x, 'f', -1, 64))
		}
		for _, c := range used {
			cell := "–"
			if v, _ := r.median(row.name, e.s, e.x, c.figure); v != 0 {
				cell = short(v)
			}
			cells = append(cells, cell)
		}
		if row.alternates {
			for _, of := range []value{serverCPU, redisCPU} {
				cells = append(cells, cmp.Or(r.ratioToPlain(row, e.s, e.x, of), "–"))
			}
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// draw returns the SVG of a row, or "" if the row has no picture or more lines than there are
// colors.
func draw(r *results, row *row) string {
	if len(row.subjects) == 0 && row.x == "" {
		return ""
	}
	if row.x == "" {
		var all []bar
		for _, s := range row.subjects {
			server, found := r.median(row.name, s, 0, serverCPU)
			redis, _ := r.median(row.name, s, 0, redisCPU)
			if found {
				all = append(all, bar{string(s), []float64{server, redis}})
			}
		}
		return bars(row.title+": CPU per request, µs", all, "server", "Redis")
	}
	figure, what := value(allCPU), "CPU of server and Redis per request, µs"
	switch {
	case row.gobench != nil:
		figure, what = benchmarkValue, row.gobench.unit
	case row.baseline != "":
		figure, what = redisCPU, "CPU of Redis per request, µs"
	}
	var all []line
	for _, m := range r.all {
		if m.Row != row.name || m.X <= 0 {
			continue
		}
		k := slices.IndexFunc(all, func(l line) bool { return l.name == string(m.Subject) })
		if k < 0 {
			k, all = len(all), append(all, line{name: string(m.Subject)})
		}
		if !slices.Contains(all[k].x, m.X) {
			v, _ := r.median(row.name, m.Subject, m.X, figure)
			all[k].x, all[k].y = append(all[k].x, m.X), append(all[k].y, v)
		}
	}
	if len(all) == 0 || len(all) > len(colors) {
		return ""
	}
	return lines(row.title+": "+what, row.x, all)
}
