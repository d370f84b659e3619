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

// encode makes one status for each descriptor, in order; the worst of them is the overall code. A descriptor that the
// store could not decide fails the whole, unless another denies: then the answer is sure whatever it would have said.
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
				failed = fmt.Errorf("descriptors[%d]: %w: %w", i, errUndecided, err)
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
	return response, nil
}

func encodeStatus(
	limits []descriptors.RateLimit, verdicts []limiters.Verdict,
) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	s := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: ratelimitv3.RateLimitResponse_OK}
	i := telling(verdicts)
	if i < 0 {
		if len(verdicts) > 0 {
			s.Code = ratelimitv3.RateLimitResponse_UNKNOWN
		}
		return s
	}
	v, limit := &verdicts[i], &limits[i]
	wait := v.ResetAfter
	if !v.Allowed {
		s.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
		if v.RetryAfter >= 0 {
			wait = v.RetryAfter
		}
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

// telling is the verdict that a status shows: the denial with the longest wait, else the one with the least left, the
// first of equals; -1 if none was decided.
func telling(verdicts []limiters.Verdict) int {
	best := -1
	for i := range verdicts {
		if verdicts[i].Err == nil && (best < 0 || tellsMore(&verdicts[i], &verdicts[best])) {
			best = i
		}
	}
	return best
}

func tellsMore(a, b *limiters.Verdict) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.Allowed:
		return a.Remaining < b.Remaining
	default:
		// As unsigned numbers, "never" is the longest wait.
		return uint64(a.RetryAfter) > uint64(b.RetryAfter)
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
