package descriptors

import "encoding/binary"

// A nodeRecord is one node of a [ruleIndex], without pointers and aligned to 8 bytes:
//
//	0      4         8       12       16       20         24
//	| rule | inexact | exact | parent | length | length   | key, value, padding |
//	                                    of key   of value
//
//	rule     the number of the rule; 0: neither limits nor unlimited: true
//	inexact  the number of the inexactChildren, from 1; 0: none
//	exact    the id of the exact child; 0: none; inBuckets with an id: several, in the buckets of
//	         the index, whose parent is this id
//	parent   the id of the parent
//
// A node with a list of values has a record for each value, all with the same children. The parent
// of these children is the record of the first value. A record with prefixes has neither key nor
// value. The slice may extend beyond the record.
//
// BenchmarkMatchAmong is the reason for this form: with Go strings in the records, or with one Go
// map of all exact children, it took longer.
type nodeRecord []byte

// A recordID is the offset of a record in the index, divided by 8. 0 means none: a missing child,
// or the parent of the root.
type recordID uint32

const (
	alignment    = 8
	recordHeader = 24

	inBuckets recordID = 1 << 31 // a flag beside an id; see nodeRecord
)

// appendRecord appends the record of a node without children.
func appendRecord(dst []byte, rule uint32, parent recordID, e Entry) []byte {
	for _, field := range [recordHeader / 4]uint32{rule, 0, 0, uint32(parent), uint32(len(e.Key)), uint32(len(e.Value))} {
		dst = binary.LittleEndian.AppendUint32(dst, field)
	}
	dst = append(append(dst, e.Key...), e.Value...)
	for len(dst)%alignment > 0 {
		dst = append(dst, 0)
	}
	return dst
}

// setChildren sets exact and inexact.
func (r nodeRecord) setChildren(exact recordID, inexact uint32) {
	binary.LittleEndian.PutUint32(r[4:], inexact)
	binary.LittleEndian.PutUint32(r[8:], uint32(exact))
}

func (r nodeRecord) field(offset int) uint32 { return binary.LittleEndian.Uint32(r[offset:]) }
func (r nodeRecord) rule() uint32            { return r.field(0) }
func (r nodeRecord) inexact() uint32         { return r.field(4) }
func (r nodeRecord) exact() recordID         { return recordID(r.field(8)) }
func (r nodeRecord) parent() recordID        { return recordID(r.field(12)) }
func (r nodeRecord) key() []byte             { return r[recordHeader:][:r.field(16)] }
func (r nodeRecord) value() []byte           { return r[recordHeader+int(r.field(16)):][:r.field(20)] }
