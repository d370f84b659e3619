package recording

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// HashedPrefix begins a value that a recorder has replaced by its HMAC.
const HashedPrefix = "hmac:"

// IsHashed reports whether a recorder has replaced the value by its HMAC.
func IsHashed(value string) bool { return strings.HasPrefix(value, HashedPrefix) }

// AppendLine appends line to b as a [Reader] reads it, with a line break. It omits hits of 1. The
// time must have whole microseconds. Lines sort by their times as texts do.
func AppendLine(b []byte, line *Line) []byte {
	b = appendTime(append(b, `{"t":"`...), line.At)
	b = appendString(append(b, `","domain":`...), line.Request.Domain)
	b = append(b, `,"descriptors":[`...)
	ones, same := true, true
	for i := range line.Request.Descriptors {
		d := &line.Request.Descriptors[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, e := range d.Entries {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(append(b, '['), e.Key)
			b = append(appendString(append(b, ','), e.Value), ']')
		}
		b = append(b, ']')
		ones = ones && d.Hits == 1
		same = same && d.Hits == line.Request.Descriptors[0].Hits && refundsNothing(d) == refundsNothing(&line.Request.Descriptors[0])
	}
	b = append(b, ']')
	switch {
	case ones:
	case same:
		b = appendHits(append(b, `,"hits":`...), &line.Request.Descriptors[0])
	default:
		b = append(b, `,"hits":[`...)
		for i := range line.Request.Descriptors {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendHits(b, &line.Request.Descriptors[i])
		}
		b = append(b, ']')
	}
	if line.HasAllowed {
		b = strconv.AppendBool(append(b, `,"allowed":`...), line.Allowed)
	}
	if line.By != FromStore {
		b = appendString(append(b, `,"by":`...), line.By.String())
	}
	if line.LeftOut > 0 {
		b = strconv.AppendInt(append(b, `,"left_out":`...), int64(line.LeftOut), 10)
	}
	return append(appendOverrides(b, line.Request.Descriptors), '}', '\n')
}

func refundsNothing(d *decide.Descriptor) bool { return d.Refund && d.Hits == 0 }

// appendHits appends the hits of a descriptor. A refund of 0 hits is -0, which other readers of
// JSON take for a peek.
func appendHits(b []byte, d *decide.Descriptor) []byte {
	if refundsNothing(d) {
		return append(b, "-0"...)
	}
	return strconv.AppendInt(b, d.Hits, 10)
}

// appendOverrides appends the limits that the request carried, if any.
func appendOverrides(b []byte, all []decide.Descriptor) []byte {
	if !slices.ContainsFunc(all, func(d decide.Descriptor) bool { return d.Override != nil }) {
		return b
	}
	b = append(b, `,"overrides":[`...)
	for i := range all {
		if i > 0 {
			b = append(b, ',')
		}
		o := all[i].Override
		if o == nil {
			b = append(b, "null"...)
			continue
		}
		b = strconv.AppendUint(append(b, `{"requests_per_unit":`...), uint64(o.RequestsPerUnit), 10)
		if o.Unit != descriptors.UnitUnknown {
			b = appendString(append(b, `,"unit":`...), o.Unit.String())
		}
		if o.UnitMultiplier > 1 {
			b = strconv.AppendUint(append(b, `,"unit_multiplier":`...), uint64(o.UnitMultiplier), 10)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// AppendNote appends the note with which a recorder begins each file.
func AppendNote(b []byte, at time.Time, r RecorderNote) []byte {
	b = appendTime(append(b, `{"t":"`...), at)
	b = strconv.AppendFloat(append(b, `","sample":`...), r.Sample, 'g', -1, 64)
	return append(appendString(append(b, `,"secret":`...), r.Secret), '}', '\n')
}

// AppendDropped appends the note that a recorder has dropped lines since its last note.
func AppendDropped(b []byte, at time.Time, lines int64) []byte {
	b = appendTime(append(b, `{"t":"`...), at)
	return append(strconv.AppendInt(append(b, `","dropped":`...), lines, 10), '}', '\n')
}

// appendTime appends a time with microseconds.
func appendTime(b []byte, at time.Time) []byte {
	return at.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z07:00")
}

// appendString appends s as JSON. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string has no error
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
