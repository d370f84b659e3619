package rls

import (
	"math"
	"strconv"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	codeOK        = ratelimitv3.RateLimitResponse_OK
	codeOverLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

var codeOf = [...]ratelimitv3.RateLimitResponse_Code{
	decide.Allowed: codeOK, decide.Denied: codeOverLimit, decide.Undecided: ratelimitv3.RateLimitResponse_UNKNOWN,
}

func overallCode(r *decide.Result) ratelimitv3.RateLimitResponse_Code {
	if r.Denied {
		return codeOverLimit
	}
	return codeOK
}

// saturated converts n to 32 bits, as requests_per_unit and limit_remaining have; larger values become the maximum.
func saturated(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }

func remaining(d *decide.Decision) uint32 { return saturated(d.Remaining) }

// resetSeconds returns duration_until_reset rounded up to seconds. Envoy would round down, and clients would retry too early.
func resetSeconds(d *decide.Decision) int64 { return int64((d.Reset + time.Second - 1) / time.Second) }

func (s *Service) response(c *call) (*ratelimitv3.RateLimitResponse, error) {
	result := &c.observation.Result
	r := &ratelimitv3.RateLimitResponse{
		OverallCode: overallCode(result),
		Statuses:    make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, len(result.Decisions)),
	}
	for i := range result.Decisions {
		r.Statuses[i] = statusMessage(&result.Decisions[i])
	}
	wire, err := s.appendOptional(nil, c)
	if err != nil || len(wire) == 0 {
		return r, err
	}
	return r, proto.UnmarshalOptions{Merge: true}.Unmarshal(wire, r)
}

func statusMessage(d *decide.Decision) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	m := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: codeOf[d.Outcome], LimitRemaining: remaining(d)}
	if d.Limit == nil {
		return m
	}
	m.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: saturated(d.Limit.RequestsPerUnit),
		Unit:            unitOfLimit[d.Limit.Unit],
		Name:            d.Limit.Name,
	}
	if d.Limit.UnitMultiplier > 1 {
		m.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(d.Limit.UnitMultiplier)
	}
	m.DurationUntilReset = &durationpb.Duration{Seconds: resetSeconds(d)}
	return m
}

// appendLimitHeaders appends the headers of one limit: of the last descriptor that is denied by itself, or else of the first one
// with the fewest remaining hits. It skips descriptors that only end a lease, and appends nothing if no limit is known.
func (s *Service) appendLimitHeaders(b []byte, decisions []decide.Decision) []byte {
	var shown *decide.Decision
	minimum := int64(math.MaxInt64)
	for i := range decisions {
		// envoyproxy/ratelimit omits a limit with 2^32 - 1 remaining hits.
		if d := &decisions[i]; d.Limit != nil && !d.End && d.Remaining < minimum && d.Remaining != math.MaxUint32 {
			shown, minimum = d, d.Remaining
		}
	}
	for i := range decisions {
		if d := &decisions[i]; d.Outcome == decide.Denied && !d.Quota {
			shown = d
		}
	}
	if shown == nil || shown.Limit == nil {
		return b
	}
	h := s.options.Headers
	b = appendHeader(b, h.Limit, strconv.FormatInt(int64(saturated(shown.Limit.RequestsPerUnit)), 10))
	b = appendHeader(b, h.Remaining, strconv.FormatInt(int64(remaining(shown)), 10))
	return appendHeader(b, h.Reset, strconv.FormatInt(resetSeconds(shown), 10))
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
