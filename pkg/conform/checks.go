package conform

import "slices"

// checks returns the checks of a run. Those that are known to crash a service are the last.
func checks(chosen []algorithm) []check {
	all := slices.Concat(protocolChecks(), semanticsChecks())
	for _, a := range chosen {
		all = append(all, countingChecks(a)...)
	}
	for _, a := range chosen {
		all = append(all, turnChecks(a)...)
	}
	return slices.Concat(all, clientChecks(), crashChecks())
}
