package limiters

import "slices"

// Inspect returns a group of hits that read the state of a key under l without changing it. The first is denied if l without its
// penalty would deny one more hit, regardless of peek=over. If l has a penalty, the second is denied only during the penalty, with
// the rest of the penalty as its RetryAfter. A plain peek could be an offence. The second hit is omitted for a limit so large that
// no larger one exists.
func (l *Limit) Inspect(key string) []Hit {
	hits := []Hit{{Key: key, Limit: l.withoutPenalty()}}
	if l.penalty != nil {
		if limit := l.neverFull(); limit != nil {
			hits = append(hits, Hit{Key: key, Limit: limit})
		}
	}
	return hits
}

// withoutPenalty returns a limit that shares states with l, has no penalty, and denies a peek if it would deny one more hit.
func (l *Limit) withoutPenalty() *Limit {
	spec := l.spec
	spec.Params.Penalty = PenaltySpec{}
	if slices.ContainsFunc(Parameters(spec.Algorithm), func(p Parameter) bool { return p.Key == peek.Key }) {
		spec.Params.Peek = PeekWouldFit
	}
	if limit, err := New(spec); err == nil {
		return limit
	}
	return l // removing optional parameters keeps a limit valid
}

// neverFull returns a limit that shares states with l and that no state fills, so that only a penalty denies its peeks; nil if
// there is none.
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
