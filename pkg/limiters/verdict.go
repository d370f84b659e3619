package limiters

import (
	"math"
	"time"
)

// A Verdict is the result of one [Op].
type Verdict struct {
	Allowed bool
	// Penalized reports a denial by a penalty, which ends after RetryAfter. It is false during a
	// penalty if the limit itself denies for longer.
	Penalized    bool
	PenaltyBegan bool // Penalized, and the penalty began with this operation
	// TooManyLeases reports a denial because the key has [MaxLeases] open reservations.
	TooManyLeases bool
	// LeaseAlreadyOpen reports an allowed charge whose id has a lease of an earlier charge, so it
	// opens none and charges nothing. It is set too if another operation of the group is denied.
	LeaseAlreadyOpen bool
	By               DecidedBy
	LeaseAt          LeaseLocation // of an allowed charge: where its lease may be
	// Order sorts the verdicts of one key with equal At, if the store used its own clock. It is
	// below [OrderAfterStore] in a verdict of the store.
	Order uint16
	// At is when the operation was decided, in µs since 1970, by the store's clock, or with
	// [ByShare] by the clock of this process. It is 0 with [ByPolicy], and if the operation failed.
	At        int64
	Used      int64 // the key's usage after this operation
	Remaining int64 // how many further hits fit; 0 during a penalty
	// RetryAfter is the wait until the denied hits fit if nothing else is charged; negative if they
	// never fit. Under concurrency, and with TooManyLeases, it is a suggested pause of at most a
	// second, because a lease may end at any time.
	RetryAfter  time.Duration
	ResetAfter  time.Duration // the time until the key has fully reset
	PenaltyLeft time.Duration // after an inspection, the time left of the key's penalty; 0 outside of a penalty
	Err         error         // why this operation was not decided; other verdicts remain valid
}

// NewVerdict returns the verdict on an operation under l from the key's usage after it and times in
// µs.
func NewVerdict(l *Limit, allowed bool, used, retryAfter, resetAfter int64) Verdict {
	return Verdict{
		Allowed:    allowed,
		Used:       used,
		Remaining:  max(0, l.capacity-used),
		RetryAfter: micros(retryAfter),
		ResetAfter: micros(resetAfter),
	}
}

// Denied reports whether v denies its operation. One that was not decided is neither allowed nor
// denied.
func (v *Verdict) Denied() bool { return !v.Allowed && v.Err == nil }

// NeverFits reports whether v denies hits that can never fit.
func (v *Verdict) NeverFits() bool { return v.RetryAfter < 0 }

// ComparableWait returns RetryAfter, or the longest duration if the hits never fit, so that waits
// compare.
func (v *Verdict) ComparableWait() time.Duration {
	if v.NeverFits() {
		return math.MaxInt64
	}
	return v.RetryAfter
}

// WithPenalty adds a penalty of the key to v, the verdict of the limit alone. The penalty ends
// after left; if left is 0, v is unchanged. The penalty denies the hits, unless the limit itself
// denies them for longer or forever.
func (v Verdict) WithPenalty(left time.Duration) Verdict {
	if left == 0 {
		return v
	}
	v.Allowed, v.Remaining, v.ResetAfter = false, 0, max(v.ResetAfter, left)
	if v.ComparableWait() <= left {
		v.Penalized, v.TooManyLeases, v.RetryAfter = true, false, left
	}
	return v
}
