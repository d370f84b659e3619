package rls

import (
	"fmt"
	"math"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// encode makes one status for each descriptor, in order; the worst of them is the overall code. The error tells of a
// descriptor that the store could not decide. It fails the whole, and there is no response, unless another denies: then
// the answer is sure, whatever that one would have said.
func encode(p planned) (*ratelimitv3.RateLimitResponse, error) {
	response := &ratelimitv3.RateLimitResponse{
		OverallCode: ratelimitv3.RateLimitResponse_OK,
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(p.matches)),
	}
	var failed error
	for i := range p.matches {
		m := &p.matches[i]
		verdicts := p.of(m)
		for j := range verdicts {
			if err := verdicts[j].Err; err != nil && failed == nil {
				failed = fmt.Errorf("descriptors[%d]: %s: %w", i, m.name(), err)
			}
		}
		s := encodeStatus(m.limits, verdicts)
		if s.Code == ratelimitv3.RateLimitResponse_OVER_LIMIT {
			response.OverallCode = s.Code
		}
		response.Statuses[i] = s
	}
	if failed != nil && response.OverallCode == ratelimitv3.RateLimitResponse_OK {
		return nil, failed
	}
	return response, failed
}

func encodeStatus(
	limits []descriptors.RateLimit, verdicts []limiters.Verdict,
) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	s := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	if len(verdicts) == 0 {
		return s
	}
	i := telling(verdicts)
	v, limit := &verdicts[i], &limits[i]
	if v.Err != nil {
		s.Code = ratelimitv3.RateLimitResponse_UNKNOWN
		return s
	}
	wait := v.ResetAfter
	if !v.Allowed {
		s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		wait = waitOf(v, limit)
	}
	s.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: limit.RequestsPerUnit,
		Unit:            unitsOfLimits[limit.Unit],
	}
	if limit.UnitMultiplier > 1 {
		s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(limit.UnitMultiplier)
	}
	s.LimitRemaining = uint32(min(v.Remaining, math.MaxUint32))
	// Envoy drops the fraction: rounded up, no one comes back too early.
	s.DurationUntilReset = &durationpb.Duration{Seconds: int64((wait + time.Second - 1) / time.Second)}
	return s
}

// waitOf is how long a denied client is told to wait. What never fits has no wait; but a client that is told none comes
// back at once, so it is told to wait until the key is as good as new, or where it is, for a window.
func waitOf(v *limiters.Verdict, limit *descriptors.RateLimit) time.Duration {
	switch {
	case v.RetryAfter >= 0:
		return v.RetryAfter
	case v.ResetAfter > 0:
		return v.ResetAfter
	default:
		return limit.Limit.Spec().Window
	}
}

// telling is the verdict that a status shows, the first of equals: the denial with the longest wait, else one that could
// not be decided, else the one with the least left.
func telling(verdicts []limiters.Verdict) int {
	best := 0
	for i := range verdicts {
		if tellsMore(&verdicts[i], &verdicts[best]) {
			best = i
		}
	}
	return best
}

func tellsMore(a, b *limiters.Verdict) bool {
	switch ra, rb := rank(a), rank(b); {
	case ra != rb:
		return ra > rb
	case ra == denied:
		// As unsigned numbers, "never" is the longest wait.
		return uint64(a.RetryAfter) > uint64(b.RetryAfter)
	default:
		return a.Remaining < b.Remaining
	}
}

const (
	allowed = iota
	undecidable
	denied
)

func rank(v *limiters.Verdict) int {
	switch {
	case v.Err != nil:
		return undecidable
	case v.Allowed:
		return allowed
	default:
		return denied
	}
}

var unitsOfLimits = map[descriptors.Unit]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	descriptors.Second: ratelimitv3.RateLimitResponse_RateLimit_SECOND,
	descriptors.Minute: ratelimitv3.RateLimitResponse_RateLimit_MINUTE,
	descriptors.Hour:   ratelimitv3.RateLimitResponse_RateLimit_HOUR,
	descriptors.Day:    ratelimitv3.RateLimitResponse_RateLimit_DAY,
	descriptors.Week:   ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	descriptors.Month:  ratelimitv3.RateLimitResponse_RateLimit_MONTH,
	descriptors.Year:   ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}
