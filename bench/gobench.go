package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/e2e/harness"
)

// A gobench is a benchmark of `go test`, for figures that need no server.
type gobench struct{ pkg, pattern, unit string }

// run runs the benchmark once and returns a measurement for each line: Benchmark/SUBJECT or Benchmark/SUBJECT/X.
func (g *gobench) run(ctx context.Context) ([]*measurement, error) {
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", g.pattern, "-benchtime", "1s", g.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test -bench %s %s: %w\n%s", g.pattern, g.pkg, err, out)
	}
	var all []*measurement
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(line, "Benchmark") {
			continue
		}
		_, name, _ := strings.Cut(fields[0], "/")
		name, _, _ = strings.Cut(name, "-")
		name, x, scaled := strings.Cut(name, "/")
		m := &measurement{Subject: subject(name)}
		if scaled {
			if m.X, err = strconv.ParseFloat(x, 64); err != nil {
				return nil, err
			}
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if fields[i+1] == g.unit {
				if m.Value, err = strconv.ParseFloat(fields[i], 64); err != nil {
					return nil, err
				}
				all = append(all, m)
			}
		}
	}
	return all, nil
}
