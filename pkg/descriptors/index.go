package descriptors

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// A ruleIndex is the tree of a domain, laid out for few cache misses, which dominate a search among
// many rules. Matching an entry reads one bucket and one record, which contains its texts. The
// record of an only child follows that of its parent. Only inexactChildren contain pointers, so the
// garbage collector has little to mark.
//
// A bucket of the hash table is the upper 32 bits of a hash, followed by the identifier of a
// record; 0 is an empty bucket.
type ruleIndex struct {
	seed    maphash.Seed
	records []byte
	buckets []uint64 // a hash table; its length is a power of two, and at least half are empty
	inexact []inexactChildren
	table   *ruleTable
	root    recordID
}

// inexactChildren are the children of a node that match more than their own keys and values: those
// of the kinds Prefixes, Wildcard and KeyOnly.
type inexactChildren struct {
	prefixesByKey map[string]*prefixTable
	wildcards     []wildcardRecord
	keyOnly       map[string]recordID // by key
}

type wildcardRecord struct {
	wildcard wildcard
	record   recordID
}

// An indexer adds the nodes of a tree to an index.
type indexer struct {
	*ruleIndex
	hashed []recordID // the records of the hash table: the exact children that are not alone
}

func newRuleIndex(root *Node, table *ruleTable) *ruleIndex {
	x := indexer{ruleIndex: &ruleIndex{seed: maphash.MakeSeed(), table: table, records: make([]byte, alignment)}}
	x.root = x.add(root, 0, Entry{})
	x.records = bytes.Clone(x.records) // without spare capacity
	x.buckets = make([]uint64, 1<<bits.Len(uint(2*len(x.hashed))))
	for _, id := range x.hashed {
		x.insert(id)
	}
	return x.ruleIndex
}

// newRecord appends the record of a node without its children.
func (x *ruleIndex) newRecord(n *Node, parent recordID, e Entry) (id recordID) {
	rule := uint32(0)
	if n.rule != nil {
		rule = n.rule.number
	}
	id = recordID(len(x.records) / alignment)
	x.records = appendRecord(x.records, rule, parent, e)
	return id
}

// add adds n under the entry e, with the nodes below it, and returns the record. A node of the kind
// Values is added with each value, and a wildcard also by its text.
func (x *indexer) add(n *Node, parent recordID, e Entry) recordID {
	switch {
	case n.record == 0:
		n.record = x.newRecord(n, parent, e)
		exact, inexact := x.addExact(n), x.addInexact(n) // both may move the records
		x.record(n.record).setChildren(exact, inexact)
	case n.kind == Values:
		id, first := x.newRecord(n, parent, e), x.record(n.record)
		x.record(id).setChildren(first.exact(), first.inexact())
		return id
	}
	return n.record
}

// addExact adds the children of n that match an exact entry. It returns the field exact of the
// record of n, see [nodeRecord].
func (x *indexer) addExact(n *Node) recordID {
	var ids []recordID
	for _, c := range n.children {
		if c.kind == Prefixes {
			continue
		}
		// c may be a wildcard, which matches its own text like an exact value.
		for _, value := range c.values() {
			ids = append(ids, x.add(c, n.record, Entry{c.key, value}))
		}
	}
	switch len(ids) {
	case 0:
		return 0
	case 1:
		return ids[0]
	}
	x.hashed = append(x.hashed, ids...)
	return n.record | inBuckets
}

// addInexact adds the inexactChildren of n, which has a record, and returns their number.
func (x *indexer) addInexact(n *Node) uint32 {
	if len(n.children) == 0 {
		return 0
	}
	r := inexactChildren{keyOnly: map[string]recordID{}}
	siblings := map[string][]*Node{} // those with prefixes, by key
	for _, c := range n.children {
		switch c.kind {
		case Prefixes:
			x.add(c, n.record, Entry{})
			siblings[c.key] = append(siblings[c.key], c)
		case Wildcard:
			r.wildcards = append(r.wildcards, wildcardRecord{newWildcard(c.entry()), x.add(c, n.record, c.entry())})
		case KeyOnly:
			r.keyOnly[c.key] = x.add(c, n.record, c.entry())
		}
	}
	if len(siblings)+len(r.wildcards)+len(r.keyOnly) == 0 {
		return 0
	}
	if len(siblings) > 0 {
		r.prefixesByKey = make(map[string]*prefixTable, len(siblings))
	}
	for key, all := range siblings {
		r.prefixesByKey[key] = newPrefixTable(all)
	}
	x.inexact = append(x.inexact, r)
	return uint32(len(x.inexact))
}

// inexactOf returns the inexactChildren of a record; nil if there are none.
func (x *ruleIndex) inexactOf(r nodeRecord) *inexactChildren {
	number := r.inexact()
	if number == 0 {
		return nil
	}
	return &x.inexact[number-1]
}

func (x *ruleIndex) insert(id recordID) {
	r := x.record(id)
	h := x.hash(r.parent(), &Entry{string(r.key()), string(r.value())})
	mask := uint64(len(x.buckets) - 1)
	i := h & mask
	for x.buckets[i] > 0 {
		i = (i + 1) & mask
	}
	x.buckets[i] = h>>32<<32 | uint64(id)
}

func (x *ruleIndex) hash(parent recordID, e *Entry) uint64 {
	high, low := bits.Mul64(maphash.String(x.seed, e.Value)^uint64(parent)*0x9e3779b97f4a7c15, maphash.String(x.seed, e.Key)|1)
	return high ^ low
}

// find returns the rule for entries, see [Domain.Match].
func (x *ruleIndex) find(entries []Entry) *Rule {
	id := x.root
	for i := range entries {
		if id = x.next(id, &entries[i]); id == 0 {
			return nil
		}
	}
	return x.table.get(x.record(id).rule())
}

// next returns the child that e selects, in the order of [Domain.Match]; 0 if there is none.
//
// Two other searches follow this order. They cannot share it, because they answer other questions
// from other data, but tests compare all three:
//
//   - next finds the one child that decides a request, and stops there.
//     TestMatchAgreesWithLinearSearch compares it with a search of all nodes.
//   - [Walker] finds every node that matches a request, for [Step.Hides]. TestWalkAgreesWithMatch
//     compares it with next.
//   - rulesfile.branchIndex finds a rule that matches whatever another rule matches, without a
//     request. TestUnreachableRulesNeverMatch compares it with Walker.
func (x *ruleIndex) next(id recordID, e *Entry) recordID {
	r := x.record(id)
	switch exact := r.exact(); {
	case exact == 0:
	case exact&inBuckets > 0:
		if child := x.findInBuckets(exact&^inBuckets, e); child > 0 {
			return child
		}
	case x.isFor(exact, e):
		return exact
	}
	inexact := x.inexactOf(r)
	if inexact == nil {
		return 0
	}
	if inexact.prefixesByKey != nil {
		if child := inexact.prefixesByKey[e.Key].find(e.Value); child > 0 {
			return child
		}
	}
	for i := range inexact.wildcards {
		if w := &inexact.wildcards[i]; w.wildcard.matches(*e) {
			return w.record
		}
	}
	return inexact.keyOnly[e.Key]
}

func (x *ruleIndex) findInBuckets(parent recordID, e *Entry) recordID {
	h := x.hash(parent, e)
	mask := uint64(len(x.buckets) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch bucket := x.buckets[i]; {
		case bucket == 0:
			return 0
		case bucket>>32 == h>>32 && x.record(recordID(bucket)).parent() == parent && x.isFor(recordID(bucket), e):
			return recordID(bucket)
		}
	}
}

// isFor reports whether the record with id has the key and the value of e.
func (x *ruleIndex) isFor(id recordID, e *Entry) bool {
	r := x.record(id)
	return string(r.value()) == e.Value && string(r.key()) == e.Key
}

func (x *ruleIndex) record(id recordID) nodeRecord { return x.records[int(id)*alignment:] }
