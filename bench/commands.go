package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rls/weir/e2e/harness"
)

// The recording of row "replay": 1,000,000 requests in 67 minutes. With this seed, 103,895 of the
// users send at least one.
const (
	replayLoad  = "steady rate=250 duration=4000s users=150000 zipf=1 seed=1 descriptor=user_id={user},action={read|read|post|login}"
	replayRules = `domain: ugc
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: read, rate_limit: {algorithm: funnel, unit: minute, requests_per_unit: 60}}
      - {key: action, value: post, rate_limit: {algorithm: fixed_window, unit: minute, requests_per_unit: 10}}
      - {key: action, value: login, rate_limit: {algorithm: sliding_log, unit: minute, requests_per_unit: 5}}
`
)

// The commands of row "replay".
const (
	oneModel  subject = "simulate with one client model"
	allModels subject = "simulate with three client models and a report"
	suggested subject = "suggest"
)

// replayCommands runs each command once on a recording, with default settings.
func replayCommands(ctx context.Context, b binaries) (all []*measurement, err error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	rules, recording := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "recording.ndjson.zst")
	if err := os.WriteFile(rules, []byte(replayRules), 0o600); err != nil {
		return nil, err
	}
	record := []string{"simulate", "--config", rules, "--clients", "drop", "--synthetic", replayLoad, "--write", recording}
	if _, err := runCommand(ctx, b.weir, record...); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name subject
		args []string
	}{
		{oneModel, []string{"simulate", "--clients", "drop"}},
		{allModels, []string{"simulate", "--html", filepath.Join(dir, "report.html")}},
		{suggested, []string{"suggest"}},
	} {
		m, err := runCommand(ctx, b.weir, append(c.args, "--config", rules, recording)...)
		if err != nil {
			return nil, err
		}
		m.Subject = c.name
		all = append(all, m)
	}
	return all, nil
}

// runCommand runs a command to its end, and measures its time, its CPU and its memory.
func runCommand(ctx context.Context, name string, args ...string) (*measurement, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s %q: %w\n%s", name, args, err, out)
	}
	state := cmd.ProcessState
	m := &measurement{
		Seconds: time.Since(began).Seconds(), CPUSeconds: (state.UserTime() + state.SystemTime()).Seconds(),
		PeakMB: float64(state.SysUsage().(*syscall.Rusage).Maxrss) * 1024 / 1e6,
	}
	m.round()
	return m, nil
}

// A gobench is a benchmark of `go test`, for figures that need no server.
type gobench struct{ pkg, pattern, unit string }

// run runs the benchmark once and returns a measurement for each line: Benchmark/SUBJECT or
// Benchmark/SUBJECT/X.
func (g *gobench) run(ctx context.Context, _ binaries) ([]*measurement, error) {
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
