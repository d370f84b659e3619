package conform

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Domain is the domain of the rules, and of most requests.
const Domain = "weir_conform"

// version is the version of the rules. It must change with the rules, so that a run reports a service with older ones.
const version = "1"

// An algorithm is an algorithm whose rules the service may hold.
type algorithm struct {
	name     string
	prefix   string        // of the keys of its rules
	extra    string        // in rate_limit
	hammered time.Duration // the length of the check of boundaries
	fault    func(ops []op, limit int64, window, skew time.Duration) *boundaryFault
}

func (a algorithm) rule(name string) string { return a.prefix + name }

// Algorithms returns the names of the algorithms that can be graded. envoyproxy/ratelimit has only the first.
func Algorithms() []string { return []string{"fixed_window", "sliding_log", "funnel"} }

func parseAlgorithms(names []string) ([]algorithm, error) {
	if len(names) == 0 {
		names = []string{"fixed_window"}
	}
	known := map[string]algorithm{
		"fixed_window": {"fixed_window", "", "", 2600 * time.Millisecond, windowFault},
		"sliding_log":  {"sliding_log", "log_", "algorithm: sliding_log, ", 1900 * time.Millisecond, logFault},
		"funnel":       {"funnel", "funnel_", "algorithm: funnel, ", 1900 * time.Millisecond, funnelFault},
	}
	var all []algorithm
	for _, name := range names {
		a, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("unknown algorithm %q: want some of %s", name, strings.Join(Algorithms(), ", "))
		}
		if !slices.ContainsFunc(all, func(b algorithm) bool { return b.name == a.name }) {
			all = append(all, a)
		}
	}
	return all, nil
}

// A rule is a rule below the entry "run". The value of that entry is different for each key of a check.
type rule struct {
	key   string
	limit int64
	unit  time.Duration
	text  string // the YAML of a rule that has more than a limit, without its key
}

const day = 24 * time.Hour

var unitNames = map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", day: "day"}

func (r rule) yaml(extra string) string {
	if r.text != "" {
		return r.text
	}
	return fmt.Sprintf("rate_limit: {%sunit: %s, requests_per_unit: %d}", extra, unitNames[r.unit], r.limit)
}

// base are the rules that each algorithm has. Their windows are a day long, so a window rarely ends during a run, see trial.steady.
var base = []rule{
	{key: "day_5", limit: 5, unit: day},
	{key: "day_100", limit: 100, unit: day},
	{key: "day_1000", limit: 1000, unit: day},
	{key: "second_10", limit: 10, unit: time.Second},
}

// fixedOnly are further rules of fixed windows, in the grammar of envoyproxy/ratelimit. Every run needs them.
var fixedOnly = []rule{
	{key: "version_" + version, limit: 4001, unit: day},
	{key: "minute_100", limit: 100, unit: time.Minute},
	{key: "minute_10", limit: 10, unit: time.Minute},
	{key: "hour_100", limit: 100, unit: time.Hour},
	{key: "zero", unit: day, text: "rate_limit: {unit: day, requests_per_unit: 0}"},
	{key: "unlimited", text: "rate_limit: {unlimited: true}"},
	{key: "shadow", limit: 3, unit: day, text: "shadow_mode: true\n        rate_limit: {unit: day, requests_per_unit: 3}"},
	{key: "wide", limit: 41, unit: day, text: "rate_limit: {name: wide, unit: day, requests_per_unit: 41}"},
	{key: "narrow", limit: 42, unit: day, text: "rate_limit: {name: narrow, replaces: [{name: wide}], unit: day, requests_per_unit: 42}"},
	{key: "pair", text: "value: b_c\n        rate_limit: {unit: day, requests_per_unit: 43}"},
	{key: "joined", limit: 44, unit: day, text: "rate_limit: {unit: day, requests_per_unit: 44}\n" +
		"        descriptors: [{key: below, rate_limit: {unit: day, requests_per_unit: 45}}]"},
	{key: "depth", limit: 21, unit: day, text: "rate_limit: {unit: day, requests_per_unit: 21}\n" +
		"        descriptors: [{key: below, rate_limit: {unit: day, requests_per_unit: 22}}]"},
	{key: "branch", text: "value: special\n        descriptors: [{key: below, rate_limit: {unit: day, requests_per_unit: 31}}]"},
	{key: "branch", text: "descriptors: [{key: other, rate_limit: {unit: day, requests_per_unit: 32}}]"},
	{key: "match", limit: 14, unit: day},
	{key: "match", text: "value: exact\n        rate_limit: {unit: day, requests_per_unit: 11}"},
	{key: "match", text: "value: pre*\n        rate_limit: {unit: day, requests_per_unit: 12}"},
	{key: "match", text: "value: prefix*\n        rate_limit: {unit: day, requests_per_unit: 13}"},
	{key: "match", text: "value: preexact\n        rate_limit: {unit: day, requests_per_unit: 15}"},
	{key: "match", text: "value: exempt"},
}

// catalogue returns the rules of the algorithms.
func catalogue(chosen []algorithm) (all []rule) {
	fixed := algorithm{name: "fixed_window"}
	all = append(all, slices.Clone(fixedOnly)...)
	chosen = slices.DeleteFunc(slices.Clone(chosen), func(a algorithm) bool { return a.name == fixed.name })
	for _, a := range append([]algorithm{fixed}, chosen...) {
		for _, r := range base {
			text := r.yaml(a.extra)
			r.key, r.text = a.rule(r.key), text
			all = append(all, r)
		}
	}
	return all
}

// Rules returns the rules that the service must hold, in the grammar of envoyproxy/ratelimit, and with the keys that Weir adds for the
// other algorithms. Nil means fixed_window only. The rules of fixed windows are always included: the checks of the protocol use them.
func Rules(algorithms []string) (string, error) {
	chosen, err := parseAlgorithms(algorithms)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# The rules for weir conform, version %s. Every counter is below the entry \"run\", whose value is new in "+
		"each run.\n", version)
	fmt.Fprintf(&b, "domain: %s\ndescriptors:\n  - key: run\n    descriptors:\n", Domain)
	for _, r := range catalogue(chosen) {
		fmt.Fprintf(&b, "      - key: %s\n        %s\n", r.key, r.yaml(""))
	}
	return b.String(), nil
}
