package recorder

import (
	"encoding/binary"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/replay"
)

// An entry is a request in a queue, in bytes: its length without these four bytes, the head, and the descriptors. Numbers are little
// endian, and a text follows its length.

// headBytes is the size of a head after the length: at, now, order, by, flags, the descriptors left out and the others.
const headBytes = 8 + 8 + 2 + 1 + 1 + 1 + 1

const (
	flagAllowed = 1 << iota
	flagKnown
)

// The flags of a descriptor.
const (
	flagOverride = 1 << iota
	flagSettle   // the last entry, settle, was cut
)

// sizeOf returns an upper bound of the size of an entry.
func sizeOf(result *decide.Result, kept *selection) int {
	const perText, perDescriptor = 4, 8 + 8 + 1 + 9 + 1
	n := 4 + headBytes + perText + len(result.Domain)
	for i := range result.Decisions {
		if !kept.has(i) {
			continue
		}
		n += perDescriptor
		for j := range result.Decisions[i].Entries {
			e := &result.Decisions[i].Entries[j]
			n += 2*perText + len(e.Key) + len(e.Value)
		}
	}
	return n
}

func appendEntry(b []byte, h *head, result *decide.Result, kept *selection) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.at))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.now))
	b = binary.LittleEndian.AppendUint16(b, h.order)
	flags := byte(0)
	if h.allowed {
		flags |= flagAllowed
	}
	if h.known {
		flags |= flagKnown
	}
	b = append(b, h.by, flags, byte(h.leftOut), byte(kept.n))
	b = appendText(b, result.Domain)
	for i := range result.Decisions {
		if kept.has(i) {
			b = appendDecision(b, &result.Decisions[i])
		}
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

// appendDecision appends a descriptor: its hits, a bit for each entry whose value the rules match, flags, an override if there is one,
// and the entries.
func appendDecision(b []byte, d *decide.Decision) []byte {
	hits, flags := d.Hits, byte(0)
	switch {
	case d.End && d.Reason == decide.Settled:
		flags |= flagSettle
	case d.End:
		hits = -1
	}
	if d.Override && len(d.Limits) > 0 {
		flags |= flagOverride
	}
	matched := uint64(0)
	if d.Rule != nil {
		for j := range d.Entries {
			if d.Rule.MatchesValue(j) {
				matched |= 1 << j
			}
		}
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(hits))
	b = binary.LittleEndian.AppendUint64(b, matched)
	b = append(b, flags)
	if flags&flagOverride > 0 {
		l := &d.Limits[0]
		b = binary.LittleEndian.AppendUint32(b, uint32(l.RequestsPerUnit))
		b = append(binary.LittleEndian.AppendUint32(b, l.UnitMultiplier), byte(l.Unit))
	}
	b = append(b, byte(len(d.Entries)))
	for j := range d.Entries {
		e := &d.Entries[j]
		b = appendText(appendText(b, e.Key), e.Value)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}

// An entryReader reads the entries of a queue. Texts are substrings.
type entryReader struct {
	rest  string
	lists [][]descriptors.Entry // memory of the descriptors of a line
}

func (r *entryReader) take(n int) string {
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *entryReader) number(bytes int) (n uint64) {
	for i, s := 0, r.take(bytes); i < bytes; i++ {
		n |= uint64(s[i]) << (8 * i)
	}
	return n
}

func (r *entryReader) text() string { return r.take(int(r.number(4))) }

// head reads the head of an entry without its length.
func (r *entryReader) head() (h head, descriptors int) {
	h.at, h.now, h.order, h.by = int64(r.number(8)), int64(r.number(8)), uint16(r.number(2)), byte(r.number(1))
	flags := r.number(1)
	h.allowed, h.known = flags&flagAllowed > 0, flags&flagKnown > 0
	h.leftOut = int(r.number(1))
	return h, int(r.number(1))
}

// line reads an entry without its length into a line, whose memory it uses again. hide replaces a value that no rule matches.
func (r *entryReader) line(into *replay.Line, hide func(key, value string) string) {
	h, n := r.head()
	into.Request.Domain = r.text()
	into.By, into.Allowed, into.HasAllowed, into.LeftOut = bys[h.by], h.allowed, h.known, h.leftOut
	into.Request.Descriptors = into.Request.Descriptors[:0]
	for len(r.lists) < n {
		r.lists = append(r.lists, nil)
	}
	for i := range n {
		var d decide.Descriptor
		d, r.lists[i] = r.descriptor(r.lists[i][:0], hide)
		into.Request.Descriptors = append(into.Request.Descriptors, d)
	}
}

func (r *entryReader) descriptor(list []descriptors.Entry, hide func(key, value string) string) (d decide.Descriptor, _ []descriptors.Entry) {
	d.Hits = int64(r.number(8))
	matched, flags := r.number(8), r.number(1)
	if flags&flagOverride > 0 {
		d.Override = &decide.Override{RequestsPerUnit: uint32(r.number(4)), UnitMultiplier: uint32(r.number(4)), Unit: descriptors.Unit(r.number(1))}
	}
	for j := range int(r.number(1)) {
		e := descriptors.Entry{Key: r.text(), Value: r.text()}
		if matched>>j&1 == 0 {
			e.Value = hide(e.Key, e.Value)
		}
		list = append(list, e)
	}
	if flags&flagSettle > 0 {
		list = append(list, descriptors.Entry{Key: "settle", Value: "1"})
	}
	d.Entries = list
	return d, list
}
