package descriptors

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
)

// An index is the tree of a domain, laid out for few cache misses, which dominate a search among many rules. Each level costs
// a slot and a record with its texts; a map in each node would cost a dozen cache lines. The record of an only child follows
// that of its parent. Only patterns and prefixes contain pointers, so the garbage collector has little to mark.
//
// A slot of the hash table is the upper 32 bits of a hash, followed by the identifier of a record.
type index struct {
	seed    maphash.Seed
	records []byte
	slots   []uint64 // a hash table; its length is a power of two, and at least half are 0
	rest    []rest
	rules   *chunks
	root    uint32
	bare    []bareNode // sorted by at; for Walk only
	sources []*source
	lists   []*list
}

// A bareNode is the source and the list of a node without a rule, for Walk. There may be many, so it has no pointers.
type bareNode struct {
	at, line     uint32
	source, list uint32 // numbers, from 1, in sources and lists of the index; 0: none
}

// A rest holds the children of a node that need more than an exact lookup.
type rest struct {
	byIP   map[string]*prefixes
	wild   []wildAt
	byName map[string]uint32
}

type wildAt struct {
	pattern pattern
	at      uint32
}

// A hashedStep is an exact child with siblings, reached by its hash.
type hashedStep struct {
	parent uint32
	entry  Entry
	at     uint32
}

// An indexer adds the nodes of a tree to an index.
type indexer struct {
	*index
	steps   []hashedStep
	sources map[*source]uint32
}

func newIndex(root *Node, rules *chunks) *index {
	x := indexer{
		index:   &index{seed: maphash.MakeSeed(), rules: rules, records: make([]byte, alignment)},
		sources: map[*source]uint32{},
	}
	x.root = x.add(root, 0, Entry{})
	x.records, x.bare = bytes.Clone(x.records), slices.Clone(x.bare) // without spare capacity
	x.slots = make([]uint64, 1<<bits.Len(uint(2*len(x.steps))))
	for i := range x.steps {
		x.insert(&x.steps[i])
	}
	return x.index
}

// newRecord appends the record of a node without its children.
func (x *index) newRecord(n *Node, parent uint32, e Entry) (at uint32) {
	rule := uint32(0)
	if n.rule != nil {
		rule = n.rule.number
	}
	at = uint32(len(x.records) / alignment)
	x.records = appendRecord(x.records, rule, parent, e)
	return at
}

// setChildren sets the references of a record to its children.
func (x *index) setChildren(at, child, more uint32) {
	r := x.record(at)
	r.setChild(child)
	r.setRest(more)
}

// add adds n and the nodes below it and returns n's record. It is called several times for a pattern (as a wildcard and by its own
// text) and for a node with Values (once for each value).
func (x *indexer) add(n *Node, parent uint32, e Entry) uint32 {
	if n.at > 0 && n.level.how == oneOf {
		at := x.newRecord(n, parent, e)
		x.setChildren(at, alias, n.at)
		return at
	}
	if n.at > 0 {
		return n.at
	}
	n.at = x.newRecord(n, parent, e)
	if n.rule == nil {
		x.addBare(n)
	}
	child, more := uint32(0), uint32(0)
	for own, c := range n.exact {
		if child = x.add(c, n.at, own); len(n.exact) > 1 {
			x.steps = append(x.steps, hashedStep{n.at, own, child})
			child = hashed
		}
	}
	if len(n.byIP)+len(n.wild)+len(n.byName) > 0 {
		r := rest{byIP: n.byIP, byName: make(map[string]uint32, len(n.byName))}
		for _, all := range n.byIP {
			all.fill(func(c *Node) uint32 { return x.add(c, n.at, Entry{}) })
		}
		for i := range n.wild {
			w := &n.wild[i]
			r.wild = append(r.wild, wildAt{w.pattern, x.add(w.node, n.at, w.node.level.entry())})
		}
		for key, c := range n.byName {
			r.byName[key] = x.add(c, n.at, c.level.entry())
		}
		x.rest = append(x.rest, r)
		more = uint32(len(x.rest))
	}
	x.setChildren(n.at, child, more)
	return n.at
}

// addBare records the source and the list of a node without a rule.
func (x *indexer) addBare(n *Node) {
	b := bareNode{at: n.at, line: n.line}
	if n.from != nil {
		if x.sources[n.from] == 0 {
			x.index.sources = append(x.index.sources, n.from)
			x.sources[n.from] = uint32(len(x.index.sources))
		}
		b.source = x.sources[n.from]
	}
	if n.level.list != nil {
		x.lists = append(x.lists, n.level.list)
		b.list = uint32(len(x.lists))
	}
	x.bare = append(x.bare, b)
}

func (x *index) insert(s *hashedStep) {
	h := x.hash(s.parent, &s.entry)
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i] > 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = h>>32<<32 | uint64(s.at)
}

func (x *index) hash(parent uint32, e *Entry) uint64 {
	high, low := bits.Mul64(maphash.String(x.seed, e.Value)^uint64(parent)*0x9e3779b97f4a7c15, maphash.String(x.seed, e.Key)|1)
	return high ^ low
}

// find returns the rule for entries, see [Domain.Match].
func (x *index) find(entries []Entry) *Rule {
	at := x.root
	for i := range entries {
		if at = x.next(at, &entries[i]); at == 0 {
			return nil
		}
	}
	return x.ruleAt(at)
}

// next returns the child that e selects; 0 if there is none.
func (x *index) next(at uint32, e *Entry) uint32 {
	r := x.record(at)
	switch child := r.child(); child {
	case 0:
	case hashed:
		if child = x.lookUp(at, e); child > 0 {
			return child
		}
	case alias:
		return x.next(r.rest(), e)
	default:
		if x.isChild(child, at, e) {
			return child
		}
	}
	more := r.rest()
	if more == 0 {
		return 0
	}
	rest := &x.rest[more-1]
	if rest.byIP != nil {
		if at := rest.byIP[e.Key].find(e.Value); at > 0 {
			return at
		}
	}
	for i := range rest.wild {
		if w := &rest.wild[i]; w.pattern.matches(*e) {
			return w.at
		}
	}
	return rest.byName[e.Key]
}

func (x *index) lookUp(parent uint32, e *Entry) uint32 {
	h := x.hash(parent, e)
	mask := uint64(len(x.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch slot := x.slots[i]; {
		case slot == 0:
			return 0
		case slot>>32 == h>>32 && x.isChild(uint32(slot), parent, e):
			return uint32(slot)
		}
	}
}

// isChild reports whether the record at is the child of parent for e.
func (x *index) isChild(at, parent uint32, e *Entry) bool {
	r := x.record(at)
	return r.parent() == parent && string(r.value()) == e.Value && string(r.key()) == e.Key
}

func (x *index) record(at uint32) record { return x.records[int(at)*alignment:] }

// chunks stores rules contiguously, so that finding a rule by its number takes one memory access.
type chunks struct {
	of [][]Rule
	n  uint32
}

const perChunk = 256

// add stores a copy of r and sets its number, from 1.
func (c *chunks) add(r *Rule) *Rule {
	if c.n%perChunk == 0 {
		c.of = append(c.of, make([]Rule, perChunk))
	}
	kept := &c.of[c.n/perChunk][c.n%perChunk]
	c.n++
	*kept = *r
	kept.number = c.n
	return kept
}

// at returns the rule with a number; nil if there is none.
func (c *chunks) at(number uint32) *Rule {
	if number == 0 || number > c.n {
		return nil
	}
	return &c.of[(number-1)/perChunk][(number-1)%perChunk]
}
