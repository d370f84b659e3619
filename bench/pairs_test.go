package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRatioOfPairsHasAnInterval(t *testing.T) {
	same := ratioOf([]pair{{10, 10}, {20, 20}, {15, 15}})
	if same.mean != 1 || same.low != 1 || same.high != 1 {
		t.Errorf("equal pairs: %v, want 1 (1 to 1)", same)
	}
	// ln 2, 0 and -ln 2: the mean is 0, the deviation ln 2, and t at 2 degrees of freedom 4.303.
	wide := ratioOf([]pair{{1, 2}, {3, 3}, {2, 1}})
	if half := math.Exp(4.303 * math.Ln2 / math.Sqrt(3)); math.Abs(wide.mean-1) > 1e-9 || math.Abs(wide.high-half) > 1e-9 {
		t.Errorf("%+v, want an upper end of %v", wide, half)
	}
	if missing := ratioOf([]pair{{0, 1}, {1, 1}}); missing != (ratio{}) {
		t.Errorf("a missing figure gives %v", missing)
	}
}

// A subject with further settings is measured in turns with the plain subject before it, and with
// no other.
func TestSidesAreMeasuredWithTheirPlainSubject(t *testing.T) {
	r := row{alternates: true, subjects: recordings}
	groups := r.sides(binaries{})
	if len(groups) != 2 || len(groups[0]) != 3 || groups[0][0].subject != "memory/fixed_window" || groups[1][2].subject != "redis/fixed_window/sampled" {
		t.Errorf("groups: %v", groups)
	}
	r.alternates = false
	if groups = r.sides(binaries{}); len(groups) != len(recordings) {
		t.Errorf("%d groups of a row that measures each subject by itself, want %d", len(groups), len(recordings))
	}
}

// Each lease subject is measured in turns with the funnel, under rules that Weir accepts and a load
// of its own. The table compares them at the same number of open leases.
func TestLeaseRowComparesWithFunnel(t *testing.T) {
	all := rows()
	row := &all[slices.IndexFunc(all, func(r row) bool { return r.name == "leases" })]
	if groups := row.sides(binaries{}); len(groups) != 1 || len(groups[0]) != 3 || groups[0][0].subject != "redis/funnel" {
		t.Fatalf("groups: %v", groups)
	}
	for _, s := range row.subjects {
		if _, err := readRules(t.TempDir(), strings.TrimPrefix(string(s), "redis/"), 0); err != nil {
			t.Errorf("read the rules of %s: %v", s, err)
		}
		for _, c := range row.cases {
			if leases := c.of(s).request.OpensLeases(); leases == (s == "redis/funnel") {
				t.Errorf("%s at %v: the requests open leases: %v", s, c.x, leases)
			}
		}
	}
	r := &results{}
	for round, slow := range []float64{1, 3} {
		for _, x := range []float64{10, 1000} {
			r.all = append(r.all,
				&measurement{Row: "leases", Subject: "redis/funnel", X: x, Round: round, RedisCPU: 2 * slow},
				&measurement{Row: "leases", Subject: "redis/reserve", X: x, Round: round, RedisCPU: 3 * slow * x / 10})
		}
	}
	if got := r.ratioToPlain(row, "redis/reserve", 10, redisCPU); got != "1.500 (1.500 to 1.500)" {
		t.Errorf("the ratio is %q, want 1.5", got)
	}
}

// A comparison of no subject is an error, and a subject that fails does not hide the others.
func TestComparisonReportsEveryFailure(t *testing.T) {
	saved := start
	defer func() { start = saved }()
	start = func(_ context.Context, s side, _ load) (*setup, func() error, error) {
		return nil, nil, fmt.Errorf("%s: refused", s.subject)
	}
	all := func() []row { return []row{{name: "one", subjects: both, cases: []load{{}}}} }
	c := comparison{out: io.Discard, rounds: 2}
	err := c.compareRows(t.Context(), all(), func(subject) bool { return true })
	if n := strings.Count(fmt.Sprint(err), "row one: round 1: "); n != len(memory)+len(redis) {
		t.Errorf("%d errors, want one of each subject of Weir: %v", n, err)
	}
	err = c.compareRows(t.Context(), all(), func(s subject) bool { return s == ratelimit })
	if err == nil || !strings.Contains(err.Error(), "-subjects match no subject") {
		t.Errorf("no subject to compare: %v", err)
	}
}

func TestMeanOfEachFigure(t *testing.T) {
	mean := meanOf([]*measurement{{ServerCPU: 1, P99: 10, ServerMB: 5, Errors: 1, Error: "x"}, {ServerCPU: 3, P99: 30, ServerMB: 7}})
	if mean.ServerCPU != 2 || mean.P99 != 20 || mean.ServerMB != 7 || mean.Errors != 1 || mean.Error != "x" {
		t.Errorf("%+v, want the means of the times, the last memory, and all errors", mean)
	}
}
