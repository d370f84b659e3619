package main

import (
	"fmt"
	"slices"
	"strings"
)

// A target is a bound that Weir should keep: of a ratio between two values of one row, or of a
// value.
type target struct {
	what  string
	sign  sign
	cases []bound
}

// A sign relates a value to its bound.
type sign string

const (
	atLeast sign = "≥"
	atMost  sign = "≤"
)

func (s sign) holds(value, bound float64) bool {
	if s == atLeast {
		return value >= bound
	}
	return value <= bound
}

// A bound is the target of one algorithm or one store.
type bound struct {
	name  string
	limit float64
	ratio func(r *results) (float64, bool)
}

var algorithms = []string{"fixed_window", "sliding_log", "funnel"}

func targets() []target {
	// each compares each algorithm on a store with another subject.
	each := func(store, row string, of value, to subject, limits ...float64) (all []bound) {
		for i, algorithm := range algorithms {
			all = append(all, bound{algorithm, limits[min(i, len(limits)-1)], func(r *results) (float64, bool) {
				return r.ratio(row, of, point{subject: subject(store + "/" + algorithm)}, point{subject: to})
			}})
		}
		return all
	}
	// grown compares a subject with itself, at one x and at another.
	grown := func(name, row string, of value, s subject, x, to, limit float64) bound {
		return bound{name, limit, func(r *results) (float64, bool) { return r.ratio(row, of, point{s, x}, point{s, to}) }}
	}
	var memoryPerKey []bound
	for _, algorithm := range []string{"fixed_window", "funnel"} {
		memoryPerKey = append(memoryPerKey, bound{algorithm, 160, func(r *results) (float64, bool) {
			return r.median("memory", subject(algorithm), 0, benchmarkValue)
		}})
	}
	// replayed returns the median of a command on a recording.
	replayed := func(s subject, of value, maximum float64) bound {
		return bound{string(s), maximum, func(r *results) (float64, bool) { return r.median("replay", s, 0, of) }}
	}
	return []target{
		{"memory: decisions/s, relative to bare", atLeast, each("memory", "one", perSecond, bare, 0.90)},
		{"memory: CPU per decision, relative to bare", atMost, each("memory", "one", serverCPU, bare, 1.15)},
		{"Redis: decisions/s, relative to ratelimit", atLeast, each("redis", "one", perSecond, ratelimit, 2.8, 2.4)},
		{"Redis: CPU of Weir per decision, relative to ratelimit", atMost, each("redis", "one", serverCPU, ratelimit, 0.35)},
		{"Redis: CPU of Redis per decision, relative to Redis under ratelimit", atMost, each("redis", "one", redisCPU, ratelimit, 0.28, 0.35)},
		{"Redis, five descriptors: requests/s, relative to ratelimit", atLeast, each("redis", "five", perSecond, ratelimit, 2.8)},
		{"memory, all over limit: decisions/s, relative to bare", atLeast, each("memory", "over", perSecond, bare, 0.90)},
		{"Redis, all over limit: decisions/s, relative to bare", atLeast, each("redis", "over", perSecond, bare, 0.90)},
		{"Redis: p99 at the highest rate of ratelimit, relative to the p99 of ratelimit at that rate", atMost, each("redis", "paced", p99, ratelimit, 0.3)},
		{"Redis: p99 at the highest rate of ratelimit, relative to the p99 of ratelimit in a closed loop", atMost, pacedP99()},
		{"Redis, one at a time: p50, relative to ratelimit", atMost, each("redis", "single", p50, ratelimit, 1)},
		{"Redis, 10 open leases of a key: CPU of Redis per decision, relative to a funnel", atMost, []bound{
			{"concurrency", 2, func(r *results) (float64, bool) {
				return r.ratio("leases", redisCPU, point{"redis/concurrency", 10}, point{"redis/funnel", 10})
			}},
			{"reserve", 2, func(r *results) (float64, bool) {
				return r.ratio("leases", redisCPU, point{"redis/reserve", 10}, point{"redis/funnel", 10})
			}},
		}},
		{"busiest keys, denial log, header and receipts: CPU per decision, relative to Weir without them", atMost, []bound{
			costOf(observed, observed, "memory", 1.03), costOf(observed, observed, "redis", 1.03),
		}},
		{"a shadow file, which decides every request twice: CPU per decision, relative to Weir without it", atMost, []bound{
			costOf(shadow, shadow, "memory", 1.3), costOf(shadow, shadow, "redis", 1.15),
		}},
		{"a recording of all keys: time that a request spends on its line, relative to the CPU per decision", atMost, []bound{
			lineOnPath("memory", 0.03), lineOnPath("redis", 0.03),
		}},
		{"a recording of a tenth of the keys, with its writer: CPU per decision, relative to Weir without it", atMost, []bound{
			costOf(recorded, sampled, "memory", 1.03), costOf(recorded, sampled, "redis", 1.03),
		}},
		{"a recording of all keys, with its writer: CPU per decision, relative to Weir without it", atMost, []bound{
			costOf(recorded, recorded, "memory", 1.15), costOf(recorded, recorded, "redis", 1.15),
		}},
		{"CPU per decision with 10,000,000 keys, relative to 10,000 keys", atMost, []bound{
			grown("memory", "keys", allCPU, "memory/fixed_window", 1e7, 1e4, 1.3),
			grown("redis", "keys", allCPU, "redis/fixed_window", 1e7, 1e4, 1.3),
		}},
		{"ns per match with 100,000 rules, relative to 10 rules", atMost, []bound{
			grown("the same rule each time", "match", benchmarkValue, "one", 1e5, 10, 1.2),
			grown("all rules, in random order", "match", benchmarkValue, "all", 1e5, 10, 1.2),
		}},
		{"CPU per decision with 100,000 rules, relative to 10 rules", atMost, []bound{
			grown("memory", "rules", allCPU, "memory/fixed_window", 1e5, 10, 1.2),
		}},
		{"memory: bytes for a key of 40 bytes", atMost, memoryPerKey},
		{"a recording of 1,000,000 requests: seconds", atMost, []bound{
			replayed(oneModel, seconds, 10), replayed(allModels, seconds, 10), replayed(suggested, seconds, 20),
		}},
		{"a recording of 1,000,000 requests: MB at the peak", atMost, []bound{replayed(oneModel, peakMB, 1000), replayed(allModels, peakMB, 1000)}},
	}
}

// costOf compares a store with extra settings and without, in a row.
func costOf(row string, extra subject, store string, maxRatio float64) bound {
	plain := subject(store + "/fixed_window")
	return bound{store, maxRatio, func(r *results) (float64, bool) {
		return r.ratio(row, allCPU, point{subject: plain + "/" + extra}, point{subject: plain})
	}}
}

// lineOnPath is the time that a request spends on its line, as a fraction of the CPU per decision
// on a store.
func lineOnPath(store string, maxRatio float64) bound {
	return bound{store, maxRatio, func(r *results) (float64, bool) {
		line, measured := r.median("record", "all", 0, benchmarkValue) // ns
		cpu, found := r.median(recorded, subject(store+"/fixed_window"), 0, serverCPU)
		return line / 1000 / cpu, measured && found
	}}
}

// pacedP99 compares with the p99 of envoyproxy/ratelimit in a closed loop: each client waits for an
// answer.
func pacedP99() (all []bound) {
	for _, algorithm := range algorithms {
		all = append(all, bound{algorithm, 0.3, func(r *results) (float64, bool) {
			paced, found := r.median("paced", subject("redis/"+algorithm), 0, p99)
			waiting, one := r.median("one", ratelimit, 0, p99)
			return paced / waiting, found && one
		}})
	}
	return all
}

// A point is a subject at an x.
type point struct {
	subject subject
	x       float64
}

// ratio returns the median over all rounds of the ratio of two values of the same round, or false
// if no round has both.
func (r *results) ratio(row string, of value, a, b point) (float64, bool) {
	var ratios []float64
	for _, m := range r.of(row, a.subject, a.x) {
		for _, to := range r.of(row, b.subject, b.x) {
			if to.Round == m.Round && of(to) > 0 {
				ratios = append(ratios, of(m)/of(to))
			}
		}
	}
	if len(ratios) == 0 {
		return 0, false
	}
	return medianOf(ratios), true
}

// targetTable returns the table of all targets, met or not.
func targetTable(r *results) string {
	b := &strings.Builder{}
	b.WriteString("| ratio or value | target | measured | result |\n|---|---|---|---|\n")
	for _, t := range targets() {
		met, missing := 0, 0
		var limits, values []string
		for _, c := range t.cases {
			limits = append(limits, fmt.Sprint(c.limit))
			ratio, found := c.ratio(r)
			switch {
			case !found:
				missing++
				values = append(values, c.name+" –")
				continue
			case t.sign.holds(ratio, c.limit):
				met++
			}
			values = append(values, fmt.Sprintf("%s %s", c.name, short(ratio)))
		}
		if len(slices.Compact(slices.Clone(limits))) == 1 {
			limits = limits[:1]
		}
		verdict := "**not met**"
		switch {
		case missing > 0:
			verdict = "not measured"
		case met == len(t.cases):
			verdict = "met"
		case met > 0:
			verdict = fmt.Sprintf("**not met** by %d of %d", len(t.cases)-met, len(t.cases))
		}
		fmt.Fprintf(b, "| %s | %s %s | %s | %s |\n", t.what, t.sign, strings.Join(limits, ", "), strings.Join(values, ", "), verdict)
	}
	return b.String()
}

// short formats a number with three significant digits, or all digits before the point.
func short(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
