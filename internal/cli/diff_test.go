package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A condition on a count of keys that is a lower bound is decided only if further keys cannot change it.
func TestDiffDoesNotDecideConditionsOnUncountedKeys(t *testing.T) {
	dir := t.TempDir()
	old, now, recording := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml"), filepath.Join(dir, "day.ndjson")
	rules := "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %}}]\n"
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["k","%"]]]}` + "\n"
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(old, strings.ReplaceAll(rules, "%", "9"))
	write(now, strings.ReplaceAll(rules, "%", "0"))
	write(recording, strings.ReplaceAll(line, "%", "a")+strings.ReplaceAll(line, "%", "b"))
	for _, c := range []struct {
		condition string
		maxKeys   int
		want      error
	}{
		{"newly_denied_keys > 1", 2, diffChanges},
		{"newly_denied_keys > 2", 2, nil},
		{"newly_denied_keys > 1", 1, diffFault},
		{"newly_denied_keys > 0", 1, diffChanges},
		{"newly_denied_requests > 2", 1, nil},
		{"newly_denied_keys <= 1", 2, nil},
		{"newly_denied_keys <= 1", 1, diffFault},
		{"newly_denied_keys == 1", 1, diffFault},
		{"newly_denied_keys != 2", 1, diffFault},
		{"newly_denied_keys < 1", 1, nil},
		{"newly_denied_keys == 0", 1, nil},
		{"newly_denied_keys != 0", 1, diffChanges},
		{"newly_denied_keys_percent < 50", 1, diffFault},
		{"newly_denied_keys > 1 and newly_denied_requests > 2", 1, nil},
	} {
		d := Diff{Old: old, New: now, Against: []string{recording}, FailIf: []string{c.condition}, MaxKeys: c.maxKeys, Output: "text"}
		var out, errs bytes.Buffer
		if err := d.Run(t.Context(), Streams{Out: &out, Err: &errs}); err != c.want { //nolint:errorlint // an Exit is never wrapped
			t.Errorf("%s with %d keys: %v, want %v\n%s", c.condition, c.maxKeys, err, c.want, &errs)
		}
	}
}

// Samples of different shares are an error, even in one file.
func TestDiffRejectsSamplesOfDifferentShares(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line := `{"t":"2026-11-22T10:00:00Z","domain":"d","descriptors":[[["k","v"]]]}` + "\n"
	// The second note is behind the lines that a reader holds.
	text := `{"t":"2026-11-22T10:00:00Z","sample":0.25}` + "\n" + strings.Repeat(line, 2000) + `{"t":"2026-11-22T10:00:00Z","sample":0.5}` + "\n" + line
	d := Diff{Old: rules, New: rules, Against: []string{"-"}, MaxKeys: 10, Output: "text"}
	var out, errs bytes.Buffer
	err := d.Run(t.Context(), Streams{In: strings.NewReader(text), Out: &out, Err: &errs})
	if err != diffFault || !strings.Contains(errs.String(), "samples of different shares, from 0.25 to 0.5") { //nolint:errorlint // an Exit is never wrapped
		t.Errorf("%v\n%s%s", err, &out, &errs)
	}
}
