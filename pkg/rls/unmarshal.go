package rls

import (
	"errors"
	"unicode/utf8"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// Errors of a malformed message. Unlike in google.golang.org/protobuf, a value may hold invalid
// UTF-8.
var (
	errMalformed = errors.New("invalid protobuf wire format")
	errNotUTF8   = errors.New("invalid UTF-8 in a domain or key")
)

// A reader reads a message in wire format and the messages nested in it. Strings share one copy of
// the message.
type reader struct {
	wire    []byte
	text    string // a copy of wire
	at, end int    // bounds of the innermost message that is being read
	bad     bool   // the format is invalid: all further reads return zero values
}

// unmarshal fills an empty m. It accepts what proto.Unmarshal accepts, with the same result:
// repeated scalars overwrite, repeated messages merge, and unknown fields are skipped. In addition,
// it accepts values with invalid UTF-8.
func (m *message) unmarshal(wire []byte) error {
	r := reader{wire: wire, text: string(wire), end: len(wire)}
	for r.at < r.end {
		switch tag := r.varint(); tag {
		case tagDomain:
			if err := r.utf8String(&m.domain); err != nil {
				return err
			}
		case tagDescriptors:
			outerEnd := r.enter()
			if err := m.addDescriptor().unmarshal(&r); err != nil {
				return err
			}
			r.end = outerEnd
		case tagHitsAddend:
			m.hitsAddend = uint32(r.varint())
		default:
			r.skip(tag)
		}
	}
	return r.err()
}

func (d *descriptor) unmarshal(r *reader) error {
	for r.at < r.end {
		var err error
		switch tag := r.varint(); tag {
		case tagEntries:
			outerEnd := r.enter()
			var e descriptors.Entry
			err = unmarshalEntry(&e, r)
			d.addEntry(e)
			r.end = outerEnd
		case tagLimit:
			d.hasLimit = true
			outerEnd := r.enter()
			err = d.limit.unmarshal(r)
			r.end = outerEnd
		case tagDescriptorAddend:
			d.hasHitsAddend = true
			err = r.wrapped(&d.hitsAddend)
		case tagIsNegativeHits:
			d.isNegativeHits = protowire.DecodeBool(r.varint())
		default:
			r.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return r.err()
}

func unmarshalEntry(e *descriptors.Entry, r *reader) (err error) {
	for r.at < r.end {
		switch tag := r.varint(); tag {
		case tagKey:
			err = r.utf8String(&e.Key)
		case tagValue:
			err = r.value(&e.Value)
		default:
			r.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return r.err()
}

func (l *limitOverride) unmarshal(r *reader) error {
	for r.at < r.end {
		switch tag := r.varint(); tag {
		case tagOverrideRequests:
			l.requestsPerUnit = uint32(r.varint())
		case tagOverrideUnit:
			l.unit = typev3.RateLimitUnit(int32(r.varint()))
		case tagOverrideMultiplier:
			l.hasMultiplier = true
			n := uint64(l.multiplier)
			if err := r.wrapped(&n); err != nil {
				return err
			}
			l.multiplier = uint32(n)
		default:
			r.skip(tag)
		}
	}
	return r.err()
}

// wrapped reads a UInt32Value or a UInt64Value into n, which an empty message leaves unchanged.
func (r *reader) wrapped(n *uint64) error {
	outerEnd := r.enter()
	for r.at < r.end {
		switch tag := r.varint(); tag {
		case tagWrapped:
			*n = r.varint()
		default:
			r.skip(tag)
		}
	}
	r.end = outerEnd
	return r.err()
}

// fail marks the message as malformed, and ends the loop over the innermost one. The error that
// this loop then returns ends the others.
func (r *reader) fail() { r.at, r.bad = r.end, true }

func (r *reader) err() error {
	if r.bad {
		return errMalformed
	}
	return nil
}

func (r *reader) varint() uint64 {
	v, n := protowire.ConsumeVarint(r.wire[r.at:r.end])
	if n < 0 {
		r.fail()
		return 0
	}
	r.at += n
	return v
}

// enter begins a nested message. It returns the end of the outer message, which the caller must
// restore.
func (r *reader) enter() (outerEnd int) {
	n := r.varint()
	outerEnd = r.end
	if n > uint64(r.end-r.at) {
		r.fail()
		return outerEnd
	}
	r.end = r.at + int(n)
	return outerEnd
}

func (r *reader) utf8String(s *string) error {
	text, err := r.lengthDelimited()
	if err == nil && !utf8.ValidString(text) {
		err = errNotUTF8
	}
	if err != nil {
		return err
	}
	*s = text
	return nil
}

// lengthDelimited reads a length-delimited field.
func (r *reader) lengthDelimited() (string, error) {
	n := r.varint()
	if r.bad || n > uint64(r.end-r.at) {
		return "", errMalformed
	}
	r.at += int(n)
	return r.text[r.at-int(n) : r.at], nil
}

// value reads the value of an entry, which may contain arbitrary bytes from a client's header.
func (r *reader) value(s *string) error {
	text, err := r.lengthDelimited()
	if err != nil {
		return err
	}
	*s = descriptors.EscapeInvalidUTF8(text)
	return nil
}

// skip skips an unknown field. It fails for an invalid field number.
func (r *reader) skip(tag uint64) {
	number := tag >> 3
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		r.fail()
		return
	}
	n := protowire.ConsumeFieldValue(protowire.Number(number), protowire.Type(tag&7), r.wire[r.at:r.end])
	if n < 0 {
		r.fail()
		return
	}
	r.at += n
}
