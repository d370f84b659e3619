package descriptors

import "encoding/binary"

// A nodeRecord is one node of a [ruleIndex], without pointers and aligned to 8 bytes:
//
//	0      4         8       12       16       20         24
//	| rule | inexact | child | parent | length | length   | key, value, padding |
//	                                    of key   of value
//
//	rule     the number of the rule; 0: neither limits nor unlimited: true
//	inexact  the number of the inexactChildren, from 1; 0: none. In an alias: the id of the record
//	         whose children this record shares
//	child    the id of the exact child; 0: none; manyChildren: several, in the buckets of the index;
//	         alias: the record is an alias
//	parent   the id of the parent
//
// A record with prefixes has neither key nor value. The slice may extend beyond the record.
//
// With Go strings in the records, a match of two levels among 100,000 rules took 75 % more CPU. One
// Go map of all exact children took three times as much.
type nodeRecord []byte

// A recordID is the offset of a record in the index, divided by 8. 0 means none: a missing child,
// or the parent of the root.
type recordID uint32

const (
	alignment    = 8
	recordHeader = 24
	manyChildren = 1<<32 - 1
	alias        = 1<<32 - 2
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

func (r nodeRecord) field(offset int) uint32       { return binary.LittleEndian.Uint32(r[offset:]) }
func (r nodeRecord) setField(offset int, v uint32) { binary.LittleEndian.PutUint32(r[offset:], v) }

func (r nodeRecord) rule() uint32     { return r.field(0) }
func (r nodeRecord) parent() recordID { return recordID(r.field(12)) }

// child returns the id of the only exact child, 0, manyChildren or alias.
func (r nodeRecord) child() recordID { return recordID(r.field(8)) }

// inexact returns the number of the inexactChildren of a record that is not an alias.
func (r nodeRecord) inexact() uint32 { return r.field(4) }

// original returns the record whose children r, an alias, shares.
func (r nodeRecord) original() recordID { return recordID(r.field(4)) }

func (r nodeRecord) setOriginal(id recordID) {
	r.setField(8, alias)
	r.setField(4, uint32(id))
}

func (r nodeRecord) setChildren(child recordID, inexact uint32) {
	r.setField(8, uint32(child))
	r.setField(4, inexact)
}

func (r nodeRecord) key() []byte   { return r[recordHeader:][:r.field(16)] }
func (r nodeRecord) value() []byte { return r[recordHeader+int(r.field(16)):][:r.field(20)] }
