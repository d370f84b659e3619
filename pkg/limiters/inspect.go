package limiters

import "slices"

// Inspect returns hits that read the state of a key under l and change nothing. They belong in one group, with the hits of the
// other limits of the key. The first is denied if one more hit would be denied by l without its penalty, whatever a peek means
// under l. A second one exists only if l has a penalty: it is denied only during the penalty, and its RetryAfter is then the rest
// of the penalty. A plain peek under such a limit may be an offence. The second hit is missing for limits so large that no larger
// one exists.
func (l *Limit) Inspect(key string) []Hit {
	hits := []Hit{{Key: key, Limit: l.withoutPenalty()}}
	if l.penalty != nil {
		if limit := l.neverFull(); limit != nil {
			hits = append(hits, Hit{Key: key, Limit: limit})
		}
	}
	return hits
}

// withoutPenalty returns the limit that shares its states with l, has no penalty, and denies a peek if it would deny one more hit.
func (l *Limit) withoutPenalty() *Limit {
	spec := l.spec
	spec.Params.Penalty = PenaltySpec{}
	if slices.ContainsFunc(Parameters(spec.Algorithm), func(p Parameter) bool { return p.Key == peek.Key }) {
		spec.Params.Peek = PeekWouldFit
	}
	if limit, err := New(spec); err == nil {
		return limit
	}
	return l // a valid limit without some of its parameters is valid
}

// neverFull returns a limit that shares its states with l and that no state of l fills, so only a penalty denies its peeks. It
// returns nil if there is none.
func (l *Limit) neverFull() *Limit {
	spec := l.spec
	switch spec.Algorithm {
	case "fixed_window":
		spec.Max = MaxPerWindow
	case "sliding_log":
		spec.Max = 2*spec.Max + 1 // a log keeps at most twice its maximum
	default:
		spec.Max = max(spec.Max, 1)
		spec.Params.Capacity = 2*l.capacity + 1 // a funnel stops at twice its capacity
	}
	limit, err := New(spec)
	if err != nil {
		return nil
	}
	return limit
}
