package limiters

import (
	"cmp"
	"time"
)

// Type concurrency bounds the slots that requests hold at one time. A charge of n > 0 hits with a
// [LeaseID] takes n slots until the id ends or its lease expires. There are four cases:
//
//   - with a new id: it opens a lease of n slots if they are free
//   - with the id of an open lease: it is allowed and changes nothing
//   - a peek: it is allowed if one more slot is free
//   - without an id: it is allowed if n slots are free, but takes none
//
// An operation removes at most [LeasesPerOp] expired leases, the earliest first, and the expired
// lease of its own id. The other expired leases hold their slots until a later operation removes
// them. A key whose leases and ended ids have all expired holds no slot.
//
// The retry-after of a denial is at most one second, because a lease may end at any time. If the
// clock stepped back or the TTL was shortened, each operation shortens at most [LeasesPerOp] later
// expiries to now plus the TTL.
//
// A State under this limit has only leases.
type concurrency struct {
	max, ttl int64 // ttl in µs
}

// The bounds of a lease's TTL, in µs.
const (
	minTTLMicros = int64(time.Millisecond / time.Microsecond)
	maxTTLMicros = int64(24 * time.Hour / time.Microsecond)
)

var leaseParameters = []Parameter{{
	Key: "lease_ttl", Type: Duration, Min: minTTLMicros, Max: maxTTLMicros, Default: "60s",
	number: func(p *Params) *int64 { return (*int64)(&p.LeaseTTL) },
	About:  "the time after which an unreleased slot becomes free. It must be longer than any request.",
}}

// leaseTTL returns LeaseTTL or its default.
func (p *Params) leaseTTL() time.Duration { return cmp.Or(p.LeaseTTL, defaultParams().LeaseTTL) }

var concurrencyDefinition = definition{
	name:         "concurrency",
	parameters:   leaseParameters,
	largestMax:   MaxLeases,
	newAlgorithm: newConcurrency,
}

// newConcurrency returns the concurrency limit of spec. It returns an error for more than
// [MaxLeases] slots, and for a spec with CountDenied.
func newConcurrency(spec, _ Spec) (algorithm, error) {
	if spec.CountDenied {
		return nil, specErrorf("denied hits hold no slots").withRemedy("remove 'count_denied'")
	}
	if spec.Max > MaxLeases {
		return nil, specErrorf("%d slots are too many", spec.Max).withRemedy("want at most %d for each key", MaxLeases)
	}
	return &concurrency{max: spec.Max, ttl: spec.Params.leaseTTL().Microseconds()}, nil
}

// idPrefix is not "c", under which an earlier version kept another form of the state in Redis.
func (a *concurrency) idPrefix() string { return "s" }

// heldSlots returns the slots held at now. A lease that has expired holds its slots until an
// operation removes it, or until the key has fully reset.
func (s *State) heldSlots(now int64) int64 {
	leases := &s.extraOrEmpty().leases
	if leases.latest() <= now {
		return 0
	}
	return leases.open.sum
}

// leaseWait returns the retry-after of a denial because too many leases are open: until the first
// of them expires, at most MaxLeaseWait.
func (s *State) leaseWait(now, ttl int64) int64 {
	return max(1, min(s.extraOrEmpty().leases.open.earliest()-now, ttl, MaxLeaseWait.Microseconds()))
}

func (a *concurrency) fits(s *State, now, n int64) (bool, int64) {
	if s.heldSlots(now)+n <= a.max {
		return true, 0
	}
	return false, s.leaseWait(now, a.ttl)
}

func (a *concurrency) twinArgs(int64) ([maxTwinArgs]int64, int) {
	return [maxTwinArgs]int64{a.ttl}, 1
}

// usage returns the slots held at now, and in how many µs the last lease expires.
func (a *concurrency) usage(s *State, now int64) (used, resetAfter int64) {
	slots := s.heldSlots(now)
	if slots == 0 {
		return 0, 0
	}
	return slots, max(1, min(s.Extra.leases.open.latest()-now, a.ttl))
}
