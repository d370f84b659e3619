package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A condition on a count of keys that is a lower bound is decided only if further keys cannot
// change it.
func TestDiffDoesNotDecideConditionsOnUncountedKeys(t *testing.T) {
	dir := t.TempDir()
	old, now, recording := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml"), filepath.Join(dir, "day.ndjson")
	rules := "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %}}]\n"
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["k","%"]]]}` + "\n"
	write := func(path, text string) {
		must.Write(t, path, text)
	}
	write(old, strings.ReplaceAll(rules, "%", "9"))
	write(now, strings.ReplaceAll(rules, "%", "0"))
	write(recording, strings.ReplaceAll(line, "%", "a")+strings.ReplaceAll(line, "%", "b"))
	for _, c := range []struct {
		condition string
		maxKeys   int
		want      Exit
	}{
		{"newly_denied_keys > 1", 2, diffChanges},
		{"newly_denied_keys > 2", 2, 0},
		{"newly_denied_keys > 1", 1, DiffFault},
		{"newly_denied_keys > 0", 1, diffChanges},
		{"newly_denied_requests > 2", 1, 0},
		{"newly_denied_keys <= 1", 2, 0},
		{"newly_denied_keys <= 1", 1, DiffFault},
		{"newly_denied_keys == 1", 1, DiffFault},
		{"newly_denied_keys != 2", 1, DiffFault},
		{"newly_denied_keys < 1", 1, 0},
		{"newly_denied_keys == 0", 1, 0},
		{"newly_denied_keys != 0", 1, diffChanges},
		{"newly_denied_keys_percent < 50", 1, DiffFault},
		{"newly_denied_keys > 1 and newly_denied_requests > 2", 1, 0},
	} {
		d := Diff{Old: old, New: now, Against: []string{recording}, FailIf: []string{c.condition}, MaxKeys: c.maxKeys, Output: "text"}
		var out, errs bytes.Buffer
		if code := ExitCode(d.Run(t.Context(), Streams{Out: &out, Err: &errs}), &errs); code != int(c.want) {
			t.Errorf("%s with %d keys: exit code %d, want %d\n%s", c.condition, c.maxKeys, code, c.want, &errs)
		}
	}
}

// An undecided condition does not hide one that holds.
func TestDiffNeedsOnlyOneConditionThatHolds(t *testing.T) {
	dir := t.TempDir()
	old, now, recording := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml"), filepath.Join(dir, "day.ndjson")
	rules := "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %}}]\n"
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["k","%"]]]}` + "\n"
	must.Write(t, old, strings.ReplaceAll(rules, "%", "9"))
	must.Write(t, now, strings.ReplaceAll(rules, "%", "0"))
	must.Write(t, recording, strings.ReplaceAll(line, "%", "a")+strings.ReplaceAll(line, "%", "b"))
	const holds, undecided = "newly_denied_requests > 0", "newly_denied_keys > 1"
	for _, conditions := range [][]string{{holds, undecided}, {undecided, holds}} {
		d := Diff{Old: old, New: now, Against: []string{recording}, FailIf: conditions, MaxKeys: 1, Output: "text"}
		var out, errs bytes.Buffer
		if code := ExitCode(d.Run(t.Context(), Streams{Out: &out, Err: &errs}), &errs); code != int(diffChanges) {
			t.Errorf("%q: exit code %d, want %d\n%s", conditions, code, diffChanges, &errs)
		}
	}
}

// Samples of different shares are an error, even in one file.
func TestDiffRejectsSamplesOfDifferentShares(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	must.Write(t, rules, "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n")
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["k","v"]]]}` + "\n"
	// The second note is behind the lines that a reader holds.
	text := `{"t":"2026-11-22T10:00:00Z","sample":0.25}` + "\n" + strings.Repeat(line, 2000) + `{"t":"2026-11-22T10:00:00Z","sample":0.5}` + "\n" + line
	d := Diff{Old: rules, New: rules, Against: []string{"-"}, MaxKeys: 10, Output: "text"}
	var out, errs bytes.Buffer
	code := ExitCode(d.Run(t.Context(), Streams{In: strings.NewReader(text), Out: &out, Err: &errs}), &errs)
	if code != 1 || !strings.Contains(errs.String(), "samples of different shares, from 0.25 to 0.5") {
		t.Errorf("exit code %d\n%s%s", code, &out, &errs)
	}
}
