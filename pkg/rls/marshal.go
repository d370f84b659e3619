package rls

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/pkg/decide"
)

// The tags of the fields of a response: number and wire type. All are below 16, and so one byte.
const (
	tagOverallCode = 1<<3 | byte(protowire.VarintType)
	tagStatuses    = 2<<3 | byte(protowire.BytesType)

	tagCode               = 1<<3 | byte(protowire.VarintType)
	tagCurrentLimit       = 2<<3 | byte(protowire.BytesType)
	tagLimitRemaining     = 3<<3 | byte(protowire.VarintType)
	tagDurationUntilReset = 4<<3 | byte(protowire.BytesType)

	tagRequestsPerUnit = 1<<3 | byte(protowire.VarintType)
	tagUnit            = 2<<3 | byte(protowire.VarintType)
	tagName            = 3<<3 | byte(protowire.BytesType)
	tagUnitMultiplier  = 4<<3 | byte(protowire.BytesType)

	tagValueOfWrapper = 1<<3 | byte(protowire.VarintType)
	tagSeconds        = 1<<3 | byte(protowire.VarintType)
)

// typicalStatusSize is the size in bytes that most statuses do not exceed.
const typicalStatusSize = 40

// marshal appends the response to a decided call to b. The optional parts follow as a second message: two concatenated
// messages are one, with the fields of both.
func (s *Service) marshal(b []byte, c *call) ([]byte, error) {
	result := &c.observation.Result
	b = appendNumber(b, tagOverallCode, uint64(overallCode(result)))
	for i := range result.Decisions {
		b = appendStatus(b, &result.Decisions[i])
	}
	if optional := s.optional(c); optional != nil {
		return proto.MarshalOptions{}.MarshalAppend(b, optional)
	}
	return b, nil
}

func appendStatus(b []byte, d *decide.Decision) []byte {
	b, status := open(b, tagStatuses)
	b = appendNumber(b, tagCode, uint64(codeOf[d.Outcome]))
	if l := d.Limit; l != nil {
		var limit int
		b, limit = open(b, tagCurrentLimit)
		b = appendNumber(b, tagRequestsPerUnit, uint64(l.RequestsPerUnit))
		b = appendNumber(b, tagUnit, uint64(unitOfLimit[l.Unit]))
		if l.Name != "" {
			b = protowire.AppendString(append(b, tagName), l.Name)
		}
		if l.UnitMultiplier > 1 {
			var multiplier int
			b, multiplier = open(b, tagUnitMultiplier)
			b = shut(appendNumber(b, tagValueOfWrapper, uint64(l.UnitMultiplier)), multiplier)
		}
		b = shut(b, limit)
	}
	b = appendNumber(b, tagLimitRemaining, uint64(remaining(d)))
	if d.Limit != nil {
		var reset int
		b, reset = open(b, tagDurationUntilReset)
		b = shut(appendNumber(b, tagSeconds, uint64(resetSeconds(d))), reset)
	}
	return shut(b, status)
}

// appendNumber appends a field, or nothing for 0, as proto3 has it.
func appendNumber(b []byte, tag byte, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, tag), n)
}

// open begins a message in a field, and shut ends it: its length is a byte that shut fills in, or more, where a name is
// long.
func open(b []byte, tag byte) ([]byte, int) { return append(b, tag, 0), len(b) + 2 }

func shut(b []byte, start int) []byte {
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
