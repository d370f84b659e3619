package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A side is one of several subjects that are measured in turns.
type side struct {
	binaries binaries
	subject  subject
}

const (
	turns        = 8
	warmUpOfTurn = 50 * time.Millisecond // connections open, and the processor's caches fill
)

// measureInterleaved starts all sides and loads one at a time, in turns of a part of d. A slow
// moment of the machine then slows all sides alike. So the ratio of two sides is several times as
// precise as that of two measurements one after the other. The figures of a side are the means of
// its turns. Odd rounds begin with the last side.
func measureInterleaved(ctx context.Context, sides []side, l load, d span, round int) (_ []*measurement, err error) {
	running, order := make([]*setup, len(sides)), make([]int, len(sides))
	for i, s := range sides {
		up, stop, startErr := start(ctx, s, l)
		if startErr != nil {
			return nil, startErr
		}
		defer func() { err = errors.Join(err, stop()) }()
		running[i], order[i] = up, i
	}
	if round%2 == 1 {
		slices.Reverse(order)
	}
	d.duration /= turns
	measured := make([][]*measurement, len(sides))
	for range turns {
		for _, i := range order {
			m, err := running[i].measure(ctx, d)
			if err != nil {
				return nil, err
			}
			measured[i] = append(measured[i], m)
		}
		slices.Reverse(order)
		d.warmUp = warmUpOfTurn
	}
	means := make([]*measurement, len(sides))
	for i := range sides {
		means[i] = meanOf(measured[i])
	}
	return means, nil
}

// meanOf returns the means of the figures, and the sum of the errors. Memory is that of the last
// measurement.
func meanOf(all []*measurement) *measurement {
	mean := *all[len(all)-1]
	mean.Errors = 0
	for k, figure := range mean.figures() {
		if figure == &mean.ServerMB || figure == &mean.RedisMB {
			continue
		}
		*figure = 0
		for _, m := range all {
			*figure += *m.figures()[k] / float64(len(all))
		}
	}
	for _, m := range all {
		mean.Errors += m.Errors
		if m.Error != "" {
			mean.Error = m.Error
		}
	}
	mean.round()
	return &mean
}

// plain returns the subject without its further settings: memory/fixed_window for
// memory/fixed_window/recorded.
func (s subject) plain() subject {
	parts := strings.SplitN(string(s), "/", 3)
	return subject(strings.Join(parts[:min(2, len(parts))], "/"))
}

// baselineOf returns the subject to which a row that alternates compares s.
func (r *row) baselineOf(s subject) subject {
	if r.baseline != "" {
		return r.baseline
	}
	return s.plain()
}

// sides returns the groups of subjects that a round of the row measures in turns. Most rows measure
// each subject by itself.
func (r *row) sides(b binaries) (groups [][]side) {
	for _, s := range r.subjects {
		k := len(groups) - 1
		if !r.alternates || k < 0 || groups[k][0].subject != r.baselineOf(s) {
			groups, k = append(groups, nil), k+1
		}
		groups[k] = append(groups[k], side{b, s})
	}
	return groups
}

// ratioToPlain returns the CPU of a subject to that of the plain subject at the same x, round by
// round. It is empty for the plain subject.
func (r *results) ratioToPlain(row *row, s subject, x float64, of value) string {
	plain := row.baselineOf(s)
	if !row.alternates || s == plain {
		return ""
	}
	with, without := r.of(row.name, s, x), r.of(row.name, plain, x)
	if len(with) != len(without) {
		return ""
	}
	var pairs []pair
	for i := range with {
		pairs = append(pairs, pair{of(without[i]), of(with[i])})
	}
	return fmt.Sprint(ratioOf(pairs))
}
