package recorder

import (
	"slices"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/recording"
)

// A selection is the set of descriptors of a request that are recorded.
type selection struct {
	bits [(decide.MaxDescriptors + 63) / 64]uint64
	n    int
}

func (s *selection) remove(other *selection) {
	for i := range s.bits {
		s.bits[i] &^= other.bits[i]
	}
	s.n -= other.n
}

func (s *selection) add(i int)      { s.bits[i/64] |= 1 << (i % 64); s.n++ }
func (s *selection) has(i int) bool { return s.bits[i/64]>>(i%64)&1 > 0 }

// sample selects the descriptors whose keys are in the sample, so the recording has all hits of
// each sampled key. A replaced descriptor charges no key. It is recorded only if no other
// descriptor is left out, because a replay needs the descriptor that replaces it.
func (r *Recorder) sample(result *decide.Result) (selected selection) {
	replaced := 0
	for i := range result.Decisions {
		switch {
		case r.options.Sample >= 1:
			selected.add(i)
		case result.Decisions[i].Reason == decide.Replaced:
			replaced++
		case keysample.Hash(result.Decisions[i].Plan) <= r.maxHash:
			selected.add(i)
		}
	}
	if replaced > 0 && selected.n > 0 && selected.n+replaced == len(result.Decisions) {
		for i := range result.Decisions {
			if !selected.has(i) {
				selected.add(i)
			}
		}
	}
	return selected
}

// A head is the part of a request that sorting needs, and the outcome.
type head struct {
	at    int64  // when the store decided, in µs since 1970; 0: the store decided nothing
	now   int64  // by the clock of this machine, or 0
	order uint16 // among the decisions of the same time
	by    recording.Origin
	// allowed is the outcome, if known.
	allowed, known bool
	leftOut        int
	release        bool // the request releases the leases of its descriptors
}

// headOf returns the head of a request. Its time is that of the last operation that the store
// decided. On one Redis, and in memory, all operations of a request have the same time.
func (r *Recorder) headOf(result *decide.Result, selected *selection) head {
	h := head{leftOut: len(result.Decisions) - selected.n}
	cached, combined := int64(0), decide.CombinedOutcome{}
	for i := range result.Decisions {
		if !selected.has(i) {
			continue
		}
		combined.Add(&result.Decisions[i])
		verdicts := result.Decisions[i].Verdicts
		for j := range verdicts {
			switch v := &verdicts[j]; {
			case v.Err != nil:
				h.by = recording.FromError
			case v.By == limiters.ByStore:
				if v.At > h.at {
					h.at, h.order = v.At, v.Order
				}
			case v.By == limiters.ByCache:
				cached, h.by = max(cached, v.At), max(h.by, recording.FromCache)
			default:
				h.by = max(h.by, recording.FromFallback)
			}
		}
	}
	if h.at == 0 && cached > 0 {
		h.at, h.order = cached, limiters.OrderAfterStore
	}
	denied := combined.Denied()
	h.allowed, h.known = !denied || r.options.ShadowMode, !combined.Undecided() || r.options.ShadowMode
	return h
}

// leasesOf selects the descriptors of a selection that may have opened leases.
func leasesOf(result *decide.Result, selected *selection) (leases selection) {
	for i := range result.Decisions {
		if selected.has(i) && mayHaveOpenedLeases(&result.Decisions[i]) {
			leases.add(i)
		}
	}
	return leases
}

// mayHaveOpenedLeases reports whether d may have opened leases. A lease that was open already
// belongs to another request.
func mayHaveOpenedLeases(d *decide.Decision) bool {
	wasOpen := func(v limiters.Verdict) bool { return v.LeaseAlreadyOpen }
	return !d.EndsLease() && len(d.Limits) > 0 && d.Rule != nil && d.Rule.UsesLeases() && !slices.ContainsFunc(d.Verdicts, wasOpen)
}

// releaseOf returns the head of the release of the leases that a request opened. The store ends
// them in a later call, so the release sorts after all decisions of the same microsecond.
func releaseOf(opened head, leftOut int) head {
	return head{at: opened.at, order: limiters.OrderAfterStore, allowed: true, known: true, leftOut: leftOut, release: true}
}

// endedBefore selects the descriptors that the deny cache denied, if their denial may have ended
// before storeTime, when the store decided the other descriptors. A replay at that time would allow
// and charge them, so they need a line of their own.
func endedBefore(result *decide.Result, selected *selection, storeTime int64) (ended selection) {
	for i := range result.Decisions {
		d := &result.Decisions[i]
		if !selected.has(i) || len(d.Verdicts) == 0 || d.Verdicts[0].By != limiters.ByCache {
			continue
		}
		// The wait is exact for one hit, and an upper bound for more.
		if v := &d.Verdicts[0]; d.Hits > 1 || v.At+v.RetryAfter.Microseconds() <= storeTime {
			ended.add(i)
		}
	}
	return ended
}
