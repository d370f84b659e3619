package limiters

import "slices"

// PeekHits returns a group of hits that read the state of a key under l without changing it. The first is denied if l without its
// penalty would deny one more hit, regardless of peek=over. If l has a penalty, the second is denied only during the penalty, with
// the rest of the penalty as its RetryAfter. A plain peek could be an offence.
func (l *Limit) PeekHits(key string) []Hit {
	hits := []Hit{{Key: key, Limit: l.withoutPenalty()}}
	if l.penalty != nil {
		if limit, err := New(l.definition.neverFull(l.spec)); err == nil {
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
