package rls

import (
	"bytes"
	"math"
	"strconv"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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

// saturated converts n to 32 bits, as requests_per_unit and limit_remaining have; larger values
// become the maximum.
func saturated(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }

// marshal returns the response of a decided request, in new memory.
func (s *Service) marshal(e *exchange) []byte {
	e.wire = s.appendResponse(e.wire[:0], e)
	return bytes.Clone(e.wire)
}

// appendResponse appends the response of a decided request. It appends dynamic metadata as a
// further message, because concatenated messages are merged when they are decoded.
func (s *Service) appendResponse(b []byte, e *exchange) []byte {
	result := &e.observation.Result
	b = appendNumber(b, tagOverallCode, uint64(overallCode(result)))
	for i := range result.Decisions {
		b = appendStatus(b, &result.Decisions[i])
	}
	if s.options.Headers.Limit != "" {
		b = s.options.Headers.append(b, result.Decisions)
	}
	if s.options.DynamicMetadata {
		metadata := &ratelimitv3.RateLimitResponse{DynamicMetadata: dynamicMetadata(&e.message, result)}
		b, _ = (proto.MarshalOptions{}).MarshalAppend(b, metadata) // it fails only for invalid UTF-8, which NewStruct rejects
	}
	switch {
	case result.Denied:
		return s.appendDenial(b, result)
	case s.options.StandardHeaders:
		return appendHeaderPolicies(b, headerPolicies(result, nil))
	}
	return b
}

func appendStatus(b []byte, d *decide.Decision) []byte {
	b, start := openMessage(b, tagStatuses)
	b = appendNumber(b, tagCode, uint64(codeOf[d.Outcome]))
	l, v := d.DecidingLimit()
	if l != nil {
		var limit int
		b, limit = openMessage(b, tagCurrentLimit)
		b = appendNumber(b, tagRequestsPerUnit, uint64(saturated(l.RequestsPerUnit)))
		b = appendNumber(b, tagUnit, uint64(unitOfLimit[l.Unit]))
		if l.Name != "" {
			b = appendText(b, tagName, l.Name)
		}
		if l.UnitMultiplier > 1 {
			var multiplier int
			b, multiplier = openMessage(b, tagUnitMultiplier)
			b = closeMessage(appendNumber(b, tagWrapped, uint64(l.UnitMultiplier)), multiplier)
		}
		b = closeMessage(b, limit)
	}
	b = appendNumber(b, tagLimitRemaining, uint64(saturated(d.Remaining())))
	if v != nil {
		var reset int
		b, reset = openMessage(b, tagDurationUntilReset)
		b = closeMessage(appendNumber(b, tagSeconds, uint64(ceilSeconds(untilReset(v)))), reset)
	}
	return closeMessage(b, start)
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

// appendNumber appends a varint field. Proto3 omits 0.
func appendNumber(b []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, tag), n)
}

func appendText(b []byte, tag byte, text string) []byte {
	return protowire.AppendString(append(b, tag), text)
}

func appendHeader(b []byte, name, value string) []byte {
	b, header := openMessage(b, tagResponseHeadersToAdd)
	return closeMessage(appendText(appendText(b, tagHeaderKey, name), tagHeaderValue, value), header)
}

func appendNumberHeader(b []byte, name string, n int64) []byte {
	return appendHeader(b, name, strconv.FormatInt(n, 10))
}

// appendStructText appends a string field of a google.protobuf.Struct.
func appendStructText(b []byte, name, text string) []byte {
	b, field := openMessage(b, tagFields)
	b, value := openMessage(appendText(b, tagFieldKey, name), tagFieldValue)
	return closeMessage(closeMessage(appendText(b, tagStringValue, text), value), field)
}

// openMessage begins a nested message. It returns the start of the content, for closeMessage.
func openMessage(b []byte, tag byte) ([]byte, int) { return append(b, tag, 0), len(b) + 2 }

// closeMessage ends a nested message and sets its length. It moves content that needs more than the
// one byte that openMessage reserved for the length.
func closeMessage(b []byte, start int) []byte {
	n := len(b) - start
	if n < 0x80 {
		b[start-1] = byte(n)
		return b
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[start+more:], b[start:start+n])
	protowire.AppendVarint(b[:start-1], uint64(n))
	return b
}
