package rls

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

type descriptorStatus = ratelimitv3.RateLimitResponse_DescriptorStatus

const (
	codeUnknown   = ratelimitv3.RateLimitResponse_UNKNOWN
	codeOK        = ratelimitv3.RateLimitResponse_OK
	codeOverLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// statuses makes one status for each descriptor, in order. The error tells of a descriptor that the store could not
// decide, whose status is UNKNOWN.
func (p *planned) statuses() ([]*descriptorStatus, error) {
	all := make([]*descriptorStatus, len(p.matches))
	var failed error
	for i := range p.matches {
		m := &p.matches[i]
		verdicts := p.of(m)
		for j := range verdicts {
			if err := verdicts[j].Err; err != nil && failed == nil {
				failed = fmt.Errorf("descriptors[%d]: %s: %w", i, nameOf(m.rule), err)
			}
		}
		all[i] = m.status(verdicts)
	}
	return all, failed
}

// overall tells whether the request is denied: if a descriptor is, or, of those in quota mode, all are. What would be is
// told apart where shadow mode for all lets everything pass.
func (s *Service) overall(p planned, statuses []*descriptorStatus) (denied, shadowed bool) {
	quotas, over := 0, 0
	for i := range p.matches {
		m := &p.matches[i]
		if m.unlimited {
			continue
		}
		quota := s.options.QuotaMode || m.inQuota()
		if quota {
			quotas++
		}
		if statuses[i].GetCode() != codeOverLimit {
			continue
		}
		if quota {
			over++
		} else {
			denied = true
		}
	}
	denied = denied || quotas > 0 && quotas == over
	return denied && !s.options.ShadowMode, denied && s.options.ShadowMode
}

func (s *Service) response(
	request *ratelimitv3.RateLimitRequest, p planned, statuses []*descriptorStatus, denied bool,
) *ratelimitv3.RateLimitResponse {
	r := &ratelimitv3.RateLimitResponse{OverallCode: codeOK, Statuses: statuses}
	if denied {
		r.OverallCode = codeOverLimit
	}
	if s.options.Headers.Limit != "" {
		r.ResponseHeadersToAdd = s.headers(p, statuses)
	}
	if s.options.DynamicMetadata {
		r.DynamicMetadata = dynamicMetadata(request, p, statuses)
	}
	return r
}

func (m *match) status(verdicts []limiters.Verdict) *descriptorStatus {
	s := &descriptorStatus{Code: codeOK}
	if m.unlimited {
		s.LimitRemaining = math.MaxUint32
		return s
	}
	if len(verdicts) == 0 {
		return s
	}
	i := telling(verdicts)
	v, limit := &verdicts[i], &m.limits[i]
	if v.Err != nil {
		s.Code = codeUnknown
		return s
	}
	wait := v.ResetAfter
	if !v.Allowed {
		wait = waitOf(v, limit)
		if !m.inShadow() {
			s.Code = codeOverLimit
		}
	}
	s.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: limit.RequestsPerUnit,
		Unit:            unitsOfLimits[limit.Unit],
		Name:            limit.Name,
	}
	if limit.UnitMultiplier > 1 {
		s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(limit.UnitMultiplier)
	}
	s.LimitRemaining = uint32(min(v.Remaining, math.MaxUint32))
	// Envoy drops the fraction: rounded up, no one comes back too early.
	s.DurationUntilReset = &durationpb.Duration{Seconds: int64((wait + time.Second - 1) / time.Second)}
	return s
}

// headers tell the limit of the last descriptor that is denied by itself, else of the one with the least left, the first
// of equals; none if nothing is limited, or as good as not.
func (s *Service) headers(p planned, statuses []*descriptorStatus) []*corev3.HeaderValue {
	var told *descriptorStatus
	least := uint32(math.MaxUint32)
	for _, status := range statuses {
		if status.CurrentLimit != nil && status.LimitRemaining < least {
			told, least = status, status.LimitRemaining
		}
	}
	for i, status := range statuses {
		if status.Code == codeOverLimit && !s.options.QuotaMode && !p.matches[i].inQuota() {
			told = status
		}
	}
	if told == nil {
		return nil
	}
	header := func(name string, n int64) *corev3.HeaderValue {
		return &corev3.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)}
	}
	h := s.options.Headers
	return []*corev3.HeaderValue{
		header(h.Limit, int64(told.GetCurrentLimit().GetRequestsPerUnit())),
		header(h.Remaining, int64(told.GetLimitRemaining())),
		header(h.Reset, told.GetDurationUntilReset().GetSeconds()),
	}
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
