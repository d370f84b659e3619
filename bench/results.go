package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// results holds the measurements of the last run of each row. The file has one measurement a line.
type results struct {
	path string
	all  []*measurement
}

func readResults(path string) (*results, error) {
	r := &results{path: path}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	for decoder.More() {
		m := &measurement{}
		if err := decoder.Decode(m); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.all = append(r.all, m)
	}
	return r, nil
}

// replace replaces the measurements of a row and writes the file.
func (r *results) replace(row string, with []*measurement) error {
	r.all = slices.DeleteFunc(r.all, func(m *measurement) bool { return m.Row == row })
	r.all = append(r.all, with...)
	b := &bytes.Buffer{}
	encoder := json.NewEncoder(b)
	for _, m := range r.all {
		if err := encoder.Encode(m); err != nil {
			return err
		}
	}
	aside := r.path + ".new"
	if err := os.WriteFile(aside, b.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(aside, r.path)
}

// of returns the measurements of a subject in a row, at x.
func (r *results) of(row string, s subject, x float64) (rounds []*measurement) {
	for _, m := range r.all {
		if m.Row == row && m.Subject == s && m.X == x {
			rounds = append(rounds, m)
		}
	}
	return rounds
}

// A value is one number of a measurement.
type value func(m *measurement) float64

// median returns the median over all rounds, or false if there are none.
func (r *results) median(row string, s subject, x float64, of value) (float64, bool) {
	rounds := r.of(row, s, x)
	if len(rounds) == 0 {
		return 0, false
	}
	values := make([]float64, len(rounds))
	for i, m := range rounds {
		values[i] = of(m)
	}
	return medianOf(values), true
}

func medianOf(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

func perSecond(m *measurement) float64      { return m.PerSecond }
func serverCPU(m *measurement) float64      { return m.ServerCPU }
func redisCPU(m *measurement) float64       { return m.RedisCPU }
func allCPU(m *measurement) float64         { return m.ServerCPU + m.RedisCPU }
func p50(m *measurement) float64            { return m.P50 }
func p99(m *measurement) float64            { return m.P99 }
func benchmarkValue(m *measurement) float64 { return m.Value }
func seconds(m *measurement) float64        { return m.Seconds }
func peakMB(m *measurement) float64         { return m.PeakMB }
