package memstore

import (
	"slices"
	"strconv"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Version 1 of a snapshot has fields for two parameters: a capacity, and a flag for window_start=first_hit. They are from before
// algorithms declared their parameters, and stay because older versions of Weir read and wrote snapshots with them. A limit with
// any other parameter has a '+' behind the name of its algorithm, and the text of its parameters behind the key. A reader
// that does not know the name with the '+' leaves the key out and reads on.
const extended = "+"

// A key whose state has leases has two '+' behind the name of its algorithm. Its parameters and its leases follow the key.
const leased = "++"

// fieldsOf returns the values of the two fields, and the parameters that have none. The params must be those of a Limit, whose
// capacity is a number.
func fieldsOf(p limiters.Params) (capacity uint64, firstHit bool, rest limiters.Params) {
	text, rest := p.Cut("capacity")
	capacity, _ = strconv.ParseUint(text, 10, 64)
	start, others := rest.Cut("window_start")
	if firstHit = start == "first_hit"; firstHit {
		rest = others
	}
	return capacity, firstHit, rest
}

// paramsOf is the inverse of fieldsOf.
func paramsOf(capacity uint64, firstHit bool, rest limiters.Params) limiters.Params {
	if capacity > 0 {
		rest = rest.With("capacity", strconv.FormatUint(capacity, 10))
	}
	if firstHit {
		rest = rest.With("window_start", "first_hit")
	}
	return rest
}

// snapshotNames returns the names that records refer to by number.
func snapshotNames() []string {
	names := limiters.Algorithms()
	for _, name := range limiters.Algorithms() {
		if slices.ContainsFunc(limiters.Parameters(name), func(p limiters.Parameter) bool { return needsText(&p) }) {
			names = append(names, name+extended)
		}
		names = append(names, name+leased)
	}
	return names
}

func needsText(p *limiters.Parameter) bool {
	return p.Key != "capacity" && (p.Key != "window_start" || !slices.Equal(p.Choices, []string{"clock", "first_hit"}))
}
