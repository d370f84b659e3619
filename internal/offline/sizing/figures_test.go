package sizing

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

var update = flag.Bool("update", false, "write figures.json from bench/results.jsonl, and the outputs of docs/plan.md")

type measurement struct {
	Run, Machine, Row, Subject string
	X                          float64
	Value                      float64
	ServerCPU                  float64 `json:"server_cpu_us"`
	RedisCPU                   float64 `json:"redis_cpu_us"`
}

func results(t *testing.T) (all []measurement) {
	t.Helper()
	f, err := os.Open("../../../bench/results.jsonl")
	must.Succeed(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m measurement
		must.Succeed(t, json.Unmarshal(lines.Bytes(), &m))
		all = append(all, m)
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return all
}

// spreadOf returns the range of a value over all measurements of a subject in a row, at every x.
func spreadOf(all []measurement, row, subject string, of func(measurement) float64) (r Range) {
	for _, m := range all {
		if m.Row == row && m.Subject == subject {
			r = r.widest(Range{of(m), of(m)})
		}
	}
	return r
}

func value(m measurement) float64 { return m.Value }

// sizes returns the memory of a key by algorithm. The cost of a further hit is that of the cases
// with several hits, without that of a key with one. A penalty and a reservation are measured in a
// fixed window, whose memory is subtracted.
func sizes(all []measurement, row string) map[string]Size {
	of := map[string]Size{}
	for _, subject := range append(limiters.Algorithms(), "penalty", "reservation") {
		s := Size{Key: spreadOf(all, row, subject, value)}
		for suffix, hits := range map[string]float64{"_17": 17, "_1000": 1000} {
			if several := spreadOf(all, row, subject+suffix, value); several != (Range{}) {
				s.Hit = s.Hit.widest(several.minus(s.Key).times(1 / (hits - 1)))
			}
		}
		if !slices.Contains(limiters.Algorithms(), subject) {
			s.Key = s.Key.minus(spreadOf(all, row, "fixed_window", value))
		}
		of[subject] = Size{rounded(s.Key, 1), rounded(s.Hit, 1)}
	}
	return of
}

func (r Range) minus(o Range) Range { return Range{r.Low - o.High, r.High - o.Low} }

func rounded(r Range, digits float64) Range {
	scale := math.Pow(10, digits)
	return Range{math.Round(r.Low*scale) / scale, math.Round(r.High*scale) / scale}
}

func times(all []measurement, store string, of func(measurement) float64) map[string]CPU {
	cpus := map[string]CPU{}
	for _, algorithm := range limiters.Algorithms() {
		c := CPU{spreadOf(all, "one", store+"/"+algorithm, of), spreadOf(all, "single", store+"/"+algorithm, of)}
		if c != (CPU{}) {
			cpus[algorithm] = c
		}
	}
	return cpus
}

func machines(all []measurement) (runs []string) {
	rows := map[string][]string{}
	for _, m := range all {
		if !slices.Contains([]string{"one", "single", "bytes-memory", "bytes-redis"}, m.Row) {
			continue
		}
		key := m.Run[:10] + ": " + m.Machine
		if !slices.Contains(runs, key) {
			runs = append(runs, key)
		}
		if !slices.Contains(rows[key], m.Row) {
			rows[key] = append(rows[key], m.Row)
		}
	}
	for i, key := range runs {
		runs[i] = key + " (" + strings.Join(rows[key], ", ") + ")"
	}
	return runs
}

// Each figure of a plan is a figure of bench/results.jsonl. If a row was measured again, run this
// test with -update.
func TestFiguresMatchTheBenchmark(t *testing.T) {
	all := results(t)
	server := func(m measurement) float64 { return m.ServerCPU }
	want := Measured{
		Machines: machines(all),
		Memory:   sizes(all, "bytes-memory"), Redis: sizes(all, "bytes-redis"),
		Weir: times(all, "redis", server), InMemory: times(all, "memory", server),
		Store: times(all, "redis", func(m measurement) float64 { return m.RedisCPU }),
	}
	text, err := json.MarshalIndent(want, "", "  ")
	must.Succeed(t, err)
	text = append(text, '\n')
	if *update {
		must.Succeed(t, os.WriteFile("figures.json", text, 0o644))
		return
	}
	if !bytes.Equal(figuresJSON, text) {
		t.Errorf("figures.json is not that of bench/results.jsonl: run go test ./internal/offline/sizing -update\nwant:\n%s", text)
	}
	for algorithm, size := range want.Memory {
		if size.Key.Low <= 0 || want.Redis[algorithm].Key.Low <= 0 {
			t.Errorf("%s: the memory of a key is not measured", algorithm)
		}
	}
}
