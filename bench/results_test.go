package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
)

// A new measurement replaces earlier ones of the same row, in the file too. Other rows stay.
func TestNewMeasurementReplacesItsRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	r, err := readResults(path)
	if err != nil || len(r.all) != 0 {
		t.Fatal(r, err)
	}
	for _, row := range []string{"one", "five", "one"} {
		again := float64(len(r.all))
		must.Succeed(t, r.replace(row, []*measurement{{Row: row, Subject: bare, PerSecond: again}}))
	}
	if r, err = readResults(path); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.all {
		got = append(got, m.Row+" "+short(m.PerSecond))
	}
	if want := []string{"five 1.00", "one 2.00"}; !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	must.Write(t, path, "{\"row\": \"one\"}\nnothing")
	if _, err := readResults(path); err == nil {
		t.Error("an invalid results file is accepted")
	}
}

// A server that does not stop fails its round.
func TestHungServerFailsItsRound(t *testing.T) {
	original := start
	defer func() { start = original }()
	stuck, missing := errors.New("does not stop"), errors.New("does not start")
	start = func(_ context.Context, s side, _ load) (*setup, func() error, error) {
		if s.subject == bare {
			return &setup{}, func() error { return stuck }, nil
		}
		return nil, nil, missing
	}
	_, err := measureInterleaved(t.Context(), []side{{subject: bare}, {subject: ratelimit}}, load{}, span{}, 0)
	if !errors.Is(err, stuck) || !errors.Is(err, missing) {
		t.Errorf("the error is %v, want both", err)
	}
}

// A ratio compares values of the same round, so a machine that is slow for a while does not change
// it.
func TestRatioComparesTheSameRound(t *testing.T) {
	r := &results{}
	for round, slow := range []float64{1, 3, 9} {
		r.all = append(r.all,
			&measurement{Row: "one", Subject: "memory/funnel", Round: round, PerSecond: 90 / slow},
			&measurement{Row: "one", Subject: bare, Round: round, PerSecond: 100 / slow})
	}
	// A measurement without a counterpart is ignored.
	r.all = append(r.all, &measurement{Row: "one", Subject: "memory/funnel", Round: 3, PerSecond: 1})
	if got, found := r.ratio("one", perSecond, point{subject: "memory/funnel"}, point{subject: bare}); !found || got < 0.899 || got > 0.901 {
		t.Errorf("the ratio is %v (%v), want 0.9", got, found)
	}
	if _, found := r.ratio("five", perSecond, point{subject: "memory/funnel"}, point{subject: bare}); found {
		t.Error("a row that was not measured has a ratio")
	}
}

// The table distinguishes targets that are met, not met, and not measured.
func TestTargetTableShowsMetUnmetAndUnmeasured(t *testing.T) {
	r := &results{}
	for _, m := range []measurement{
		{Subject: bare, PerSecond: 100, ServerCPU: 10},
		{Subject: "memory/fixed_window", PerSecond: 95, ServerCPU: 11},
		{Subject: "memory/sliding_log", PerSecond: 91, ServerCPU: 12},
		{Subject: "memory/funnel", PerSecond: 90, ServerCPU: 9},
	} {
		m.Row = "one"
		r.all = append(r.all, &m)
	}
	got := targetTable(r)
	for _, want := range []string{
		"| memory: decisions/s, relative to bare | ≥ 0.9 | fixed_window 0.95, sliding_log 0.91, funnel 0.90 | met |",
		"| memory: CPU per decision, relative to bare | ≤ 1.15 | fixed_window 1.10, sliding_log 1.20, funnel 0.90 | **not met** by 1 of 3 |",
		"| Redis: decisions/s, relative to ratelimit | ≥ 2.8, 2.4, 2.4 | fixed_window –, sliding_log –, funnel – | not measured |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table has no line\n%s\nbut\n%s", want, got)
		}
	}
}

// The page can be written from nothing, and from any row.
func TestBenchmarkPageIsWrittenFromAnyResults(t *testing.T) {
	docs := t.TempDir()
	r := &results{}
	for round := range 2 {
		must.Succeed(t, publish(r, docs))
		b, err := os.ReadFile(filepath.Join(docs, "benchmarks.md"))
		if err != nil || strings.Contains(string(b), "{{") {
			t.Errorf("%v: not all parts are there:\n%s", err, b)
		}
		for _, row := range append(rows(), scaleRows()...) {
			_, err := os.Stat(filepath.Join(docs, "benchmarks", row.name+".svg"))
			if drawn := len(row.subjects) > 0 || row.x != ""; round == 1 && drawn && err != nil {
				t.Error(err)
			}
			for _, s := range append(row.subjects, "a benchmark") {
				for i := range max(1, len(row.cases)) {
					x := 0.0
					if row.x != "" {
						x = float64(i + 1)
					}
					r.all = append(r.all, &measurement{
						Run: "2026-01-02T03:04:05Z", Machine: "a machine", Row: row.name, Subject: s, X: x,
						PerSecond: 1, ServerCPU: 10, RedisCPU: 2, Value: 3,
					})
				}
			}
		}
	}
}
