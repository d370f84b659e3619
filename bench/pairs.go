package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// A pair holds one figure of two subjects, measured in turns.
type pair struct{ before, after float64 }

// A comparison measures Weir as built from this tree against an older binary of Weir.
type comparison struct {
	out       io.Writer
	binaries  binaries
	oldBinary string // its path
	rounds    int
	span      span
}

// compareRows measures both builds in turns for each row, case and subject, and prints a line with
// the ratios. It continues after a subject that failed, and returns all errors.
func (c *comparison) compareRows(ctx context.Context, all []row, selected func(subject) bool) error {
	compared := func(s subject) bool { return s.isWeir() && selected(s) }
	all = slices.DeleteFunc(all, func(r row) bool { return len(r.cases) == 0 || !slices.ContainsFunc(r.subjects, compared) })
	if len(all) == 0 {
		return errors.New("-rows and -subjects match no subject of Weir: see rows.go")
	}
	fmt.Fprintf(c.out, "| row | subject | x | CPU of Weir, after to before (95 %% interval) | CPU of Redis | decisions/s |\n|---|---|---|---|---|---|\n")
	var errs []error
	for _, row := range all {
		for _, l := range row.cases {
			for _, s := range row.subjects {
				if !compared(s) || ctx.Err() != nil {
					continue
				}
				if err := c.compareSubject(ctx, row.name, l, s); err != nil {
					errs = append(errs, fmt.Errorf("row %s: %w", row.name, err))
				}
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// isWeir reports whether the subject is Weir with a store.
func (s subject) isWeir() bool {
	store, _, _ := strings.Cut(string(s), "/")
	return store == "memory" || store == "redis"
}

func (c *comparison) compareSubject(ctx context.Context, row string, l load, s subject) error {
	var server, redis, rate []pair
	for round := range c.rounds {
		oldBinaries := c.binaries
		oldBinaries.weir = c.oldBinary
		both, err := measureInterleaved(ctx, []side{{oldBinaries, s}, {c.binaries, s}}, l, c.span, round)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		old, current := both[0], both[1]
		for _, m := range both {
			m.Row = row
			fmt.Fprintln(os.Stderr, m)
		}
		server = append(server, pair{old.ServerCPU, current.ServerCPU})
		redis = append(redis, pair{old.RedisCPU, current.RedisCPU})
		rate = append(rate, pair{old.PerSecond, current.PerSecond})
	}
	x := ""
	if l.x != 0 {
		x = fmt.Sprint(l.x)
	}
	_, err := fmt.Fprintf(c.out, "| %s | %s | %s | %s | %s | %s |\n", row, s, x, ratioOf(server), ratioOf(redis), ratioOf(rate))
	return err
}

// A ratio is the geometric mean of after/before over all pairs, with its 95 % confidence interval
// by Student's t on logarithms.
type ratio struct{ mean, low, high float64 }

func (r ratio) String() string {
	if r.mean == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", r.mean, r.low, r.high)
}

// ratioOf needs at least two pairs for an interval. It returns the zero ratio if a figure is
// missing.
func ratioOf(pairs []pair) ratio {
	n := float64(len(pairs))
	sum, squares := 0.0, 0.0
	for _, p := range pairs {
		if p.before <= 0 || p.after <= 0 {
			return ratio{}
		}
		l := math.Log(p.after / p.before)
		sum += l
		squares += l * l
	}
	mean := sum / n
	if n < 2 {
		return ratio{math.Exp(mean), 0, math.Inf(1)}
	}
	deviation := math.Sqrt(math.Max(0, squares-n*mean*mean) / (n - 1))
	half := studentT(len(pairs)-1) * deviation / math.Sqrt(n)
	return ratio{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}
}

// studentT returns the two-sided 95 % quantile of Student's t for the given degrees of freedom, at
// least 1.
func studentT(degrees int) float64 {
	table := []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131}
	if degrees <= len(table) {
		return table[degrees-1]
	}
	return 1.960 + 2.5/float64(degrees) // within 1 % above 15 degrees
}
