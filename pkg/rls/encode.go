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

// A descriptorStatus is what a descriptor is told.
type descriptorStatus struct {
	code      ratelimitv3.RateLimitResponse_Code
	limit     *descriptors.RateLimit // nil: no limit is told, and no reset
	remaining uint32
	reset     int64 // seconds
}

const (
	codeUnknown   = ratelimitv3.RateLimitResponse_UNKNOWN
	codeOK        = ratelimitv3.RateLimitResponse_OK
	codeOverLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// statuses appends to all one status for each descriptor, in order. The error tells of a descriptor that the store could
// not decide; whether that matters: the status of one in shadow mode, which denies nothing, is OK, and of others UNKNOWN.
func (p *planned) statuses(all []descriptorStatus) (_ []descriptorStatus, matters bool, failed error) {
	for i := range p.matches {
		m := &p.matches[i]
		verdicts := p.of(m)
		for j := range verdicts {
			err := verdicts[j].Err
			if err != nil && failed == nil {
				failed = fmt.Errorf("descriptors[%d]: %s: %w", i, nameOf(m.rule), err)
			}
			matters = matters || err != nil && !m.inShadow()
		}
		all = append(all, m.status(verdicts))
	}
	return all, matters, failed
}

// overall tells whether the request is denied: if a descriptor is, or, of those in quota mode, all are. What would be is
// told apart where shadow mode for all lets everything pass.
func (s *Service) overall(p *planned, statuses []descriptorStatus) (denied, shadowed bool) {
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
		if statuses[i].code != codeOverLimit {
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

func (m *match) status(verdicts []limiters.Verdict) descriptorStatus {
	if m.unlimited {
		return descriptorStatus{code: codeOK, remaining: math.MaxUint32}
	}
	if len(verdicts) == 0 {
		return descriptorStatus{code: codeOK}
	}
	i := telling(verdicts)
	v, limit := &verdicts[i], &m.limits[i]
	switch {
	case v.Err != nil && m.inShadow():
		return descriptorStatus{code: codeOK}
	case v.Err != nil:
		return descriptorStatus{code: codeUnknown}
	}
	code, wait := codeOK, v.ResetAfter
	if !v.Allowed {
		wait = waitOf(v, limit)
		if !m.inShadow() {
			code = codeOverLimit
		}
	}
	if v.By == limiters.ByPolicy {
		// Nobody knows what is left, or when.
		return descriptorStatus{code: code}
	}
	return descriptorStatus{
		code, limit, uint32(min(v.Remaining, math.MaxUint32)),
		// Envoy drops the fraction: rounded up, no one comes back too early.
		int64((wait + time.Second - 1) / time.Second),
	}
}

// response is what a call has come to, as a message.
func (s *Service) response(c *call) *ratelimitv3.RateLimitResponse {
	r := s.extras(c)
	if r == nil {
		r = &ratelimitv3.RateLimitResponse{}
	}
	r.OverallCode, r.Statuses = c.overallCode(), make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(c.statuses))
	for i := range c.statuses {
		r.Statuses[i] = c.statuses[i].message()
	}
	return r
}

func (c *call) overallCode() ratelimitv3.RateLimitResponse_Code {
	if c.answer.Denied {
		return codeOverLimit
	}
	return codeOK
}

func (s *descriptorStatus) message() *ratelimitv3.RateLimitResponse_DescriptorStatus {
	m := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: s.code, LimitRemaining: s.remaining}
	if s.limit == nil {
		return m
	}
	m.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: s.limit.RequestsPerUnit,
		Unit:            unitsOfLimits[s.limit.Unit],
		Name:            s.limit.Name,
	}
	if s.limit.UnitMultiplier > 1 {
		m.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(s.limit.UnitMultiplier)
	}
	m.DurationUntilReset = &durationpb.Duration{Seconds: s.reset}
	return m
}

// extras are the parts of a response that have to be asked for; nil where none are.
func (s *Service) extras(c *call) *ratelimitv3.RateLimitResponse {
	if s.options.Headers.Limit == "" && !s.options.DynamicMetadata {
		return nil
	}
	r := &ratelimitv3.RateLimitResponse{}
	if s.options.Headers.Limit != "" {
		r.ResponseHeadersToAdd = s.headers(&c.planned, c.statuses)
	}
	if s.options.DynamicMetadata {
		r.DynamicMetadata = dynamicMetadata(&c.asked, &c.planned, c.statuses)
	}
	return r
}

// headers tell the limit of the last descriptor that is denied by itself, else of the one with the least left, the first
// of equals; none if nothing is limited, or as good as not.
func (s *Service) headers(p *planned, statuses []descriptorStatus) []*corev3.HeaderValue {
	var told *descriptorStatus
	least := uint32(math.MaxUint32)
	for i := range statuses {
		if status := &statuses[i]; status.limit != nil && status.remaining < least {
			told, least = status, status.remaining
		}
	}
	for i := range statuses {
		if statuses[i].code == codeOverLimit && !s.options.QuotaMode && !p.matches[i].inQuota() {
			told = &statuses[i]
		}
	}
	if told == nil || told.limit == nil {
		return nil
	}
	header := func(name string, n int64) *corev3.HeaderValue {
		return &corev3.HeaderValue{Key: name, Value: strconv.FormatInt(n, 10)}
	}
	h := s.options.Headers
	return []*corev3.HeaderValue{
		header(h.Limit, int64(told.limit.RequestsPerUnit)),
		header(h.Remaining, int64(told.remaining)),
		header(h.Reset, told.reset),
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
	unknown = iota // allowed, without a word of what is left
	allowed
	undecidable
	denied
)

func rank(v *limiters.Verdict) int {
	switch {
	case v.Err != nil:
		return undecidable
	case v.Allowed && v.By == limiters.ByPolicy:
		return unknown
	case v.Allowed:
		return allowed
	default:
		return denied
	}
}

var unitsOfLimits = [...]ratelimitv3.RateLimitResponse_RateLimit_Unit{
	descriptors.Second: ratelimitv3.RateLimitResponse_RateLimit_SECOND,
	descriptors.Minute: ratelimitv3.RateLimitResponse_RateLimit_MINUTE,
	descriptors.Hour:   ratelimitv3.RateLimitResponse_RateLimit_HOUR,
	descriptors.Day:    ratelimitv3.RateLimitResponse_RateLimit_DAY,
	descriptors.Week:   ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	descriptors.Month:  ratelimitv3.RateLimitResponse_RateLimit_MONTH,
	descriptors.Year:   ratelimitv3.RateLimitResponse_RateLimit_YEAR,
}
