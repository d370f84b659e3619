package limiterstest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A SizeCase is a number of hits on each of several keys, for measurements of the memory of a key.
type SizeCase struct {
	Name string
	Hits int // the number of hits on each key, each at a time of its own
	Keys int
	spec limiters.Spec
}

// SizeCases returns one hit on a key of each algorithm, by the number of keys, because tables that
// have just grown take more memory for each key. An algorithm whose state grows also has cases of
// 17 and of 1000 hits on a key, whose names end so. The cases penalty and reservation are fixed
// windows with a penalty, which the second hit begins, and with a reservation for each hit.
func SizeCases() []SizeCase {
	const day = 24 * time.Hour
	var all []SizeCase
	add := func(name string, hits int, spec limiters.Spec) {
		for _, keys := range []int{50_000, 70_000, 100_000} {
			all = append(all, SizeCase{name, hits, keys, spec})
		}
		if MustLimit(spec).Grows() {
			all = append(all, SizeCase{name + "_17", 17, 50_000, spec}, SizeCase{name + "_1000", 1000, 100, spec})
		}
	}
	for _, name := range limiters.Algorithms() {
		spec := limiters.Spec{Algorithm: name, Max: 10_000, Window: day}
		if !limiters.HasWindow(name) {
			spec.Window, spec.Params.LeaseTTL = 0, day
		}
		add(name, 1, spec)
	}
	penalty := limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: day}
	penalty.Params.Penalty = limiters.PenaltySpec{After: 1, Within: day, For: day}
	add("penalty", 2, penalty)
	reservation := limiters.Spec{Algorithm: "fixed_window", Max: 10_000, Window: day}
	reservation.Params.Reserve.TTL = day
	add("reservation", 1, reservation)
	return all
}

// Fill calls take with the hits of the case on a number of keys of 40 bytes, in calls of at most
// 1000 operations.
func (c SizeCase) Fill(keys int, take func(now time.Time, groups []limiters.Group, out []limiters.Verdict) error) error {
	limit, now := MustLimit(c.spec), time.Now().Truncate(time.Hour)
	out := make([]limiters.Verdict, 1000)
	for hit := range c.Hits {
		at := now.Add(time.Duration(hit) * time.Second)
		for first := 0; first < keys; first += len(out) {
			ops := make([]limiters.Op, min(len(out), keys-first))
			for i := range ops {
				ops[i] = limiters.Op{Key: fmt.Sprintf("%040d", first+i), Limit: limit, Hits: 1}
				if limit.UsesLeases() {
					binary.BigEndian.PutUint64(ops[i].Lease[:], uint64(first+i+1))
					binary.BigEndian.PutUint64(ops[i].Lease[8:], uint64(hit))
				}
			}
			if err := take(at, limiters.Singles(ops...), out[:len(ops)]); err != nil {
				return err
			}
			// A benchmark may have filled the first key before.
			if v, want := out[len(ops)-1], hit < int(c.spec.Max); v.Err != nil || v.Allowed != want {
				return fmt.Errorf("%s: got %+v, want allowed: %v", c.Name, v, want)
			}
		}
	}
	return nil
}
