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
	errMalformed = errors.New("cannot parse invalid wire-format data")
	errNotUTF8   = errors.New("string field contains invalid UTF-8")
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

// wire reads a message off the wire. All text that is read are parts of one string: a copy of the message, made once.
type wire struct {
	bytes   []byte
	text    string // the same
	at, end int
}

// unmarshal fills an empty asking from the wire. It takes what proto.Unmarshal takes, and to the same effect: of a field
// that is there twice the last counts, or of a message both, and what is not known is passed over.
func (a *asking) unmarshal(bytes []byte) error {
	w := wire{bytes, string(bytes), 0, len(bytes)}
	for w.at < w.end {
		var err error
		switch tag := w.varint(); tag {
		case tagDomain:
			err = w.string(&a.domain)
		case tagDescriptors:
			inner := w.message()
			err = a.next().unmarshal(&inner)
		case tagHitsAddend:
			a.addend = uint32(w.varint())
		default:
			w.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return w.err()
}

func (d *descriptor) unmarshal(w *wire) error {
	for w.at < w.end {
		var err error
		switch tag := w.varint(); tag {
		case tagEntries:
			inner := w.message()
			var e descriptors.Entry
			e, err = entry(&inner)
			d.add(e)
		case tagLimit:
			inner := w.message()
			d.limited = true
			err = d.limit.unmarshal(&inner)
		case tagDescriptorAddend:
			inner := w.message()
			d.addended = true
			err = inner.wrapped(&d.addend)
		case tagIsNegativeHits:
			d.givesBack = protowire.DecodeBool(w.varint())
		default:
			w.skip(tag)
		}
		if err != nil {
			return err
		}
	}
	return w.err()
}

func entry(w *wire) (e descriptors.Entry, err error) {
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagKey:
			err = w.string(&e.Key)
		case tagValue:
			err = w.string(&e.Value)
		default:
			w.skip(tag)
		}
		if err != nil {
			return e, err
		}
	}
	return e, w.err()
}

func (l *sentLimit) unmarshal(w *wire) error {
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagOverrideRequests:
			l.requestsPerUnit = uint32(w.varint())
		case tagOverrideUnit:
			l.unit = typev3.RateLimitUnit(int32(w.varint()))
		case tagOverrideMultiplier:
			inner := w.message()
			l.multiplied = true
			n := uint64(l.multiplier)
			if err := inner.wrapped(&n); err != nil {
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
	for w.at < w.end {
		switch tag := w.varint(); tag {
		case tagWrapped:
			*n = w.varint()
		default:
			w.skip(tag)
		}
	}
	return w.err()
}

// What follows leaves w past its end where the message is not one, which ends every loop above.

func (w *wire) fail() { w.at, w.end = 1, 0 }

func (w *wire) err() error {
	if w.at > w.end {
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
	if w.at > w.end {
		return 0
	}
	v, n := protowire.ConsumeVarint(w.bytes[w.at:w.end])
	if n < 0 {
		w.fail()
		return 0
	}
	w.at += n
	return v
}

// message is what a field of the wire type for bytes holds.
func (w *wire) message() wire {
	n := w.varint()
	if w.at > w.end || n > uint64(w.end-w.at) {
		w.fail()
		return *w
	}
	inner := wire{w.bytes, w.text, w.at, w.at + int(n)}
	w.at = inner.end
	return inner
}

func (w *wire) string(s *string) error {
	inner := w.message()
	if inner.at > inner.end {
		return errMalformed
	}
	if *s = w.text[inner.at:inner.end]; !utf8.ValidString(*s) {
		return errNotUTF8
	}
	return nil
}

// skip passes over a field that is not known. One whose number cannot be is no field.
func (w *wire) skip(tag uint64) {
	number := tag >> 3
	if w.at > w.end || number < uint64(protowire.MinValidNumber) || number > uint64(protowire.MaxValidNumber) {
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
