package rls

import (
	"errors"
	"unicode/utf8"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// What a message may have wrong with it. They are what google.golang.org/protobuf finds wrong, no more and no less.
var (
	errMalformed = errors.New("invalid protobuf wire format")
	errNotUTF8   = errors.New("invalid UTF-8 in a domain or key")
)

// The tags of the fields of a request: number and wire type. A field under another wire type is one not known.
const (
	tagDomain      = 1<<3 | uint64(protowire.BytesType)
	tagDescriptors = 2<<3 | uint64(protowire.BytesType)
	tagHitsAddend  = 3<<3 | uint64(protowire.VarintType)

	tagEntries          = 1<<3 | uint64(protowire.BytesType)
	tagLimit            = 2<<3 | uint64(protowire.BytesType)
	tagDescriptorAddend = 3<<3 | uint64(protowire.BytesType)
	tagIsNegativeHits   = 4<<3 | uint64(protowire.VarintType)

	tagKey   = 1<<3 | uint64(protowire.BytesType)
	tagValue = 2<<3 | uint64(protowire.BytesType)

	tagOverrideRequests   = 1<<3 | uint64(protowire.VarintType)
	tagOverrideUnit       = 2<<3 | uint64(protowire.VarintType)
	tagOverrideMultiplier = 3<<3 | uint64(protowire.BytesType)

	tagWrapped = 1<<3 | uint64(protowire.VarintType)
)

// wire reads a message off the wire, and the messages in it one by one: at and end are those of the one it is in. All
// text that is read are parts of one string: a copy of the message, made once.
type wire struct {
	bytes   []byte
	text    string // the same
	at, end int
	bad     bool // it is no message: all that is read from now on is nothing
}

// unmarshal fills an empty asking from the wire. It takes what proto.Unmarshal takes, and to the same effect: of a field
// that is there twice the last counts, or of a message both, and what is not known is passed over. Beyond that it takes
// values that are no UTF-8.
func (m *message) unmarshal(bytes []byte) error {
	w := wire{bytes: bytes, text: string(bytes), end: len(bytes)}
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagDomain:
			if err := w.string(&m.domain); err != nil {
				return err
			}
		case tagDescriptors:
			rest := w.enter()
			if err := m.next().unmarshal(&w); err != nil {
				return err
			}
			w.end = rest
		case tagHitsAddend:
			m.hitsAddend = uint32(w.varint())
		default:
			w.skip(tag)
		}
	}
	return w.err()
}

func (d *descriptor) unmarshal(w *wire) error {
	for w.at < w.end {
		var err error
		switch tag := w.varint(); tag {
		case tagEntries:
			rest := w.enter()
			var e descriptors.Entry
			err = unmarshalEntry(&e, w)
			d.add(e)
			w.end = rest
		case tagLimit:
			d.hasLimit = true
			rest := w.enter()
			err = d.limit.unmarshal(w)
			w.end = rest
		case tagDescriptorAddend:
			d.hasHitsAddend = true
			err = w.wrapped(&d.hitsAddend)
		case tagIsNegativeHits:
			d.isNegativeHits = protowire.DecodeBool(w.varint())
		default:
			w.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return w.err()
}

func unmarshalEntry(e *descriptors.Entry, w *wire) (err error) {
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagKey:
			err = w.string(&e.Key)
		case tagValue:
			err = w.value(&e.Value)
		default:
			w.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return w.err()
}

func (l *limitOverride) unmarshal(w *wire) error {
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagOverrideRequests:
			l.requestsPerUnit = uint32(w.varint())
		case tagOverrideUnit:
			l.unit = typev3.RateLimitUnit(int32(w.varint()))
		case tagOverrideMultiplier:
			l.hasMultiplier = true
			n := uint64(l.multiplier)
			if err := w.wrapped(&n); err != nil {
				return err
			}
			l.multiplier = uint32(n)
		default:
			w.skip(tag)
		}
	}
	return w.err()
}

// wrapped reads a UInt32Value or a UInt64Value, to which an empty one adds nothing.
func (w *wire) wrapped(n *uint64) error {
	rest := w.enter()
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagWrapped:
			*n = w.varint()
		default:
			w.skip(tag)
		}
	}
	w.end = rest
	return w.err()
}

// fail ends every loop above.
func (w *wire) fail() { w.at, w.bad = w.end, true }

func (w *wire) err() error {
	if w.bad {
		return errMalformed
	}
	return nil
}

func (w *wire) varint() uint64 {
	if w.at < w.end && w.bytes[w.at] < 0x80 {
		w.at++
		return uint64(w.bytes[w.at-1])
	}
	return w.longVarint()
}

func (w *wire) longVarint() uint64 {
	v, n := protowire.ConsumeVarint(w.bytes[w.at:w.end])
	if n < 0 {
		w.fail()
		return 0
	}
	w.at += n
	return v
}

// enter goes into the message that a field holds, and tells the end to go back to: where the one around it ends.
func (w *wire) enter() (rest int) {
	n := w.varint()
	rest = w.end
	if n > uint64(w.end-w.at) {
		w.fail()
		return rest
	}
	w.end = w.at + int(n)
	return rest
}

func (w *wire) string(s *string) error {
	text, err := w.chunk()
	if err == nil && !utf8.ValidString(text) {
		err = errNotUTF8
	}
	if err != nil {
		return err
	}
	*s = text
	return nil
}

// chunk reads what a field of that many bytes holds.
func (w *wire) chunk() (string, error) {
	n := w.varint()
	if w.bad || n > uint64(w.end-w.at) {
		return "", errMalformed
	}
	w.at += int(n)
	return w.text[w.at-int(n) : w.at], nil
}

// value reads the value of an entry, which may be a header as a client sent it, of any bytes.
func (w *wire) value(s *string) error {
	text, err := w.chunk()
	if err != nil {
		return err
	}
	*s = escaped(text)
	return nil
}

// skip passes over a field that is not known. One whose number cannot be is no field.
func (w *wire) skip(tag uint64) {
	number := tag >> 3
	if number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
		w.fail()
		return
	}
	n := protowire.ConsumeFieldValue(protowire.Number(number), protowire.Type(tag&7), w.bytes[w.at:w.end])
	if n < 0 {
		w.fail()
		return
	}
	w.at += n
}
