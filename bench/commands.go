package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// The recording of row "replay": 1,000,000 requests in 67 minutes. With this seed, 103,895 of the users send at least one.
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
	if _, err := runCommand(ctx, b.weir, "simulate", "--config", rules, "--clients", "drop", "--synthetic", replayLoad, "--write", recording); err != nil {
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
