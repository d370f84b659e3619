package rls

import (
	"math"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	codeOK        = ratelimitv3.RateLimitResponse_OK
	codeOverLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// codeOf maps the outcome of a descriptor to the code of its status.
var codeOf = [...]ratelimitv3.RateLimitResponse_Code{
	decide.Allowed: codeOK, decide.Denied: codeOverLimit, decide.Undecided: ratelimitv3.RateLimitResponse_UNKNOWN,
}

func overallCode(r *decide.Result) ratelimitv3.RateLimitResponse_Code {
	if r.Denied {
		return codeOverLimit
	}
	return codeOK
}

// remaining is limit_remaining, which has 32 bits.
func remaining(d *decide.Decision) uint32 { return uint32(min(d.Remaining, math.MaxUint32)) }

// resetSeconds is duration_until_reset in whole seconds, rounded up: Envoy drops the fraction, and a client must not retry
// too early.
func resetSeconds(d *decide.Decision) int64 { return int64((d.Reset + time.Second - 1) / time.Second) }

// A response is a RateLimitResponse with the memory of its parts, so that a reused response allocates little.
type response struct {
	message  ratelimitv3.RateLimitResponse
	statuses []descriptorStatus
}

// A descriptorStatus is a DescriptorStatus with the memory of its parts.
type descriptorStatus struct {
	message ratelimitv3.RateLimitResponse_DescriptorStatus
	limit   ratelimitv3.RateLimitResponse_RateLimit
	reset   durationpb.Duration
}

// encode sets r to the response to c, whose request is decided. The message is valid until r is set again.
func (s *Service) encode(c *call, r *response) *ratelimitv3.RateLimitResponse {
	result, m := &c.observation.Result, &r.message
	n := len(result.Decisions)
	if n > cap(r.statuses) {
		r.statuses = make([]descriptorStatus, n)
	}
	r.statuses = r.statuses[:n]
	m.OverallCode, m.Statuses = overallCode(result), m.Statuses[:0]
	for i := range result.Decisions {
		r.statuses[i].set(&result.Decisions[i])
		m.Statuses = append(m.Statuses, &r.statuses[i].message)
	}
	if s.options.Headers.Limit != "" {
		m.ResponseHeadersToAdd = s.headers(result.Decisions)
	}
	if s.options.DynamicMetadata {
		m.DynamicMetadata = dynamicMetadata(&c.message, result)
	}
	return m
}

// set sets every field of the message that can be set for a decision.
func (s *descriptorStatus) set(d *decide.Decision) {
	m := &s.message
	m.Code, m.LimitRemaining, m.CurrentLimit, m.DurationUntilReset = codeOf[d.Outcome], remaining(d), nil, nil
	if d.Limit == nil {
		return
	}
	l := &s.limit
	l.RequestsPerUnit, l.Unit, l.Name, l.UnitMultiplier = d.Limit.RequestsPerUnit, unitOfLimit[d.Limit.Unit], d.Limit.Name, nil
	if d.Limit.UnitMultiplier > 1 {
		l.UnitMultiplier = wrapperspb.UInt32(d.Limit.UnitMultiplier)
	}
	s.reset.Seconds = resetSeconds(d)
	m.CurrentLimit, m.DurationUntilReset = l, &s.reset
}

// headers reports one limit: that of the last descriptor that is denied by itself, else that of the first with the least
// remaining. It returns nil if no limit is known.
func (s *Service) headers(decisions []decide.Decision) []*corev3.HeaderValue {
	var shown *decide.Decision
	least := uint32(math.MaxUint32)
	for i := range decisions {
		if d := &decisions[i]; d.Limit != nil && remaining(d) < least {
			shown, least = d, remaining(d)
		}
	}
	for i := range decisions {
		if d := &decisions[i]; d.Outcome == decide.Denied && !d.Quota {
			shown = d
		}
	}
	if shown == nil || shown.Limit == nil {
		return nil
	}
	header := func(name string, n int64) *corev3.HeaderValue {
		return &corev3.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)}
	}
	h := s.options.Headers
	return []*corev3.HeaderValue{
		header(h.Limit, int64(shown.Limit.RequestsPerUnit)),
		header(h.Remaining, int64(remaining(shown))),
		header(h.Reset, resetSeconds(shown)),
	}
}

var unitOfLimit = [...]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	descriptors.Second: ratelimitv3.RateLimitResponse_RateLimit_SECOND,
	descriptors.Minute: ratelimitv3.RateLimitResponse_RateLimit_MINUTE,
	descriptors.Hour:   ratelimitv3.RateLimitResponse_RateLimit_HOUR,
	descriptors.Day:    ratelimitv3.RateLimitResponse_RateLimit_DAY,
	descriptors.Week:   ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	descriptors.Month:  ratelimitv3.RateLimitResponse_RateLimit_MONTH,
	descriptors.Year:   ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}
