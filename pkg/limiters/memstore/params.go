package memstore

import "github.com/weir-rls/weir/pkg/limiters"

// Version 1 of a snapshot has fields for only two parameters: the capacity, and a flag for window_start=first_hit. For a limit with
// any other parameter, the algorithm's name ends with '+', and the parameters follow the key as text. A reader that does not know
// this name skips the key.
const paramsSuffix = "+"

// leasesSuffix ends the algorithm's name of a key whose state has leases. Its parameters and leases follow the key.
const leasesSuffix = "++"

// paramsText returns the parameters for which a snapshot has no field.
func paramsText(spec limiters.Spec) string {
	rest := spec.Params
	rest.Capacity = 0
	if isFirstHit(rest) {
		rest.WindowStart = ""
	}
	return rest.String()
}

func isFirstHit(p limiters.Params) bool { return p.WindowStart == limiters.StartByFirstHit }

// snapshotNames returns the names of algorithms to which records refer by number.
func snapshotNames() []string {
	names := limiters.Algorithms()
	for _, name := range limiters.Algorithms() {
		names = append(names, name+paramsSuffix, name+leasesSuffix)
	}
	return names
}
