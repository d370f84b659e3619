package descriptors

import "encoding/binary"

// A nodeRecord is one node of a [ruleIndex], without pointers. It is aligned to 8 bytes. Its fields are:
//
//	 0  the number of the rule; 0: no limits
//	 4  the number of its inexactChildren; 0: none
//	 8  the only exact child; 0: none; hashed: several, in buckets; alias: the children are those of the record at offset 4
//	12  the parent
//	16  the length of the key
//	20  the length of the value
//	24  the key and the value
//
// A record with prefixes has neither key nor value. The slice may extend beyond the record.
type nodeRecord []byte

// A recordID is the offset of a record in the index, divided by 8. 0 is no record: a missing child, or the parent of the root.
type recordID uint32

const (
	alignment    = 8
	recordHeader = 24
	hashed       = 1<<32 - 1
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
func (r nodeRecord) inexact() uint32  { return r.field(4) }
func (r nodeRecord) child() recordID  { return recordID(r.field(8)) }
func (r nodeRecord) parent() recordID { return recordID(r.field(12)) }

func (r nodeRecord) setChildren(child recordID, inexact uint32) {
	r.setField(8, uint32(child))
	r.setField(4, inexact)
}

func (r nodeRecord) key() []byte   { return r[recordHeader:][:r.field(16)] }
func (r nodeRecord) value() []byte { return r[recordHeader+int(r.field(16)):][:r.field(20)] }

// len returns the length in bytes, with the padding.
func (r nodeRecord) len() int {
	return (recordHeader + int(r.field(16)) + int(r.field(20)) + alignment - 1) / alignment * alignment
}
