package rls

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Headers names the response headers for a limit, its remaining hits, and the seconds until its
// reset.
type Headers struct{ Limit, Remaining, Reset string }

// append appends the headers of the limit that decides shownDecision, if any.
func (h *Headers) append(b []byte, decisions []decide.Decision) []byte {
	shown := shownDecision(decisions)
	if shown == nil {
		return b
	}
	limit, v := shown.DecidingLimit()
	b = appendNumberHeader(b, h.Limit, int64(saturated(limit.RequestsPerUnit)))
	b = appendNumberHeader(b, h.Remaining, int64(saturated(v.Remaining)))
	return appendNumberHeader(b, h.Reset, ceilSeconds(untilReset(v)))
}

// shownDecision returns the last descriptor that is denied by itself, or else the first with the
// fewest remaining hits. It skips descriptors that only end a lease or whose limit is unknown. It
// returns nil if none is left.
func shownDecision(decisions []decide.Decision) (shown *decide.Decision) {
	for i := range slices.Backward(decisions) {
		d := &decisions[i]
		if _, v := d.DecidingLimit(); v != nil && d.Outcome == decide.Denied && !d.QuotaMode {
			return d
		}
	}
	fewest := int64(math.MaxInt64)
	for i := range decisions {
		// envoyproxy/ratelimit omits a limit with 2^32 - 1 remaining hits.
		d := &decisions[i]
		if _, v := d.DecidingLimit(); v != nil && !d.EndsLease() && v.Remaining < fewest && v.Remaining != math.MaxUint32 {
			shown, fewest = d, v.Remaining
		}
	}
	return shown
}

// untilReset returns the value of Envoy's duration_until_reset: the time until denied hits fit, or
// else until the key has fully reset.
func untilReset(v *limiters.Verdict) time.Duration {
	return cmp.Or(max(0, v.RetryAfter), v.ResetAfter)
}

// ceilSeconds returns d rounded up to seconds, so that clients do not retry too early. Envoy would
// round down.
func ceilSeconds(d time.Duration) int64 {
	return int64((min(d, math.MaxInt64-time.Second) + time.Second - 1) / time.Second)
}

// retryAfterSeconds returns Retry-After in seconds, rounded up and at least 1. It adds a random
// part of up to jitter times wait, which is rounded up too, so that short waits differ.
func retryAfterSeconds(wait time.Duration, jitter float64) int64 {
	n := max(1, ceilSeconds(wait))
	const epsilon = 1e-6 // above the error of a product such as 70 * 0.1, which is above 7
	most := math.Ceil(float64(n)*jitter - epsilon)
	return n + rand.Int64N(int64(most)+1)
}
