package memstore

import (
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Version 1 of a snapshot has fields for two parameters: a capacity, and a flag for window_start=first_hit. They are from before
// algorithms declared their parameters, and stay because older versions of Weir read and wrote snapshots with them. A limit with
// any other parameter has a '+' behind the name of its algorithm, and the text of its parameters behind the key. A reader
// that does not know the name with the '+' leaves the key out and reads on.
const extended = "+"

// A key whose state has leases has two '+' behind the name of its algorithm. Its parameters and its leases follow the key.
const leased = "++"

// textOf returns the text of the parameters of a limit that have no field.
func textOf(spec limiters.Spec) string {
	rest := spec.Params
	rest.Capacity = 0
	if isFirstHit(rest) {
		rest.WindowStart = ""
	}
	return rest.String()
}

func isFirstHit(p limiters.Params) bool { return p.WindowStart == limiters.StartByFirstHit }

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
