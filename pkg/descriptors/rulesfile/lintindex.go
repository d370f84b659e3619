package rulesfile

import (
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A branchIndex finds the branches of one level that match everything that another branch matches.
// It follows the order of [descriptors.Domain.Match], see TestUnreachableRulesNeverMatch.
type branchIndex struct {
	siblings      []*branch
	exact         map[descriptors.Entry]*branch // nil until it is needed
	prefixesByKey map[string]*bart.Table[*branch]
	wildcards     []*branch          // in file order
	keyOnly       map[string]*branch // by key
	hasGenerals   bool               // generals may find branches at this level
}

func (b *branch) childIndex() *branchIndex {
	if b.index != nil {
		return b.index
	}
	ix := &branchIndex{siblings: b.children, prefixesByKey: map[string]*bart.Table[*branch]{}, keyOnly: map[string]*branch{}}
	b.index = ix
	for _, c := range b.children {
		switch c.spec.Kind() {
		case descriptors.Prefixes:
			ix.addPrefixes(c)
		case descriptors.Wildcard:
			ix.wildcards = append(ix.wildcards, c)
		case descriptors.KeyOnly:
			ix.keyOnly[c.spec.Key] = c
		default:
			continue
		}
		ix.hasGenerals = ix.hasGenerals || c.mayLimitBelow()
	}
	return ix
}

// find returns the branch with e as its value or one of its values; nil if there is none.
func (ix *branchIndex) find(e descriptors.Entry) *branch {
	if ix.exact == nil {
		ix.exact = map[descriptors.Entry]*branch{}
		for _, b := range ix.siblings {
			if b.spec.Value != "" {
				ix.exact[b.spec.Entry] = b
			}
			for _, v := range b.spec.Values {
				ix.exact[descriptors.Entry{Key: b.spec.Key, Value: v}] = b
			}
		}
	}
	return ix.exact[e]
}

func (ix *branchIndex) addPrefixes(b *branch) {
	all := ix.prefixesByKey[b.spec.Key]
	if all == nil {
		all = &bart.Table[*branch]{}
		ix.prefixesByKey[b.spec.Key] = all
	}
	for _, p := range b.spec.Prefixes {
		all.Insert(p, b)
	}
}

// mayLimitBelow reports whether a branch below b may have limits.
func (b *branch) mayLimitBelow() bool { return b.hasLimits && len(b.children) > 0 }

// generals returns the branches of the level that would match b's requests if b did not exist, and
// that mayLimitBelow.
func (l *linter) generals(ix *branchIndex, b *branch) (all []*branch) {
	add := func(found *branch) {
		if found != nil && found != b && found.mayLimitBelow() {
			all = append(all, found)
		}
	}
	for _, e := range b.entries() {
		add(l.general(ix, e, b))
	}
	for _, p := range b.spec.Prefixes {
		add(l.generalOfPrefix(ix, b.spec.Key, p, b))
	}
	if i := slices.Index(ix.wildcards, b); i >= 0 {
		add(l.wildcardOrKeyOnly(ix, ix.wildcards[i+1:], b.spec.Entry))
	}
	return all
}

// entries returns the value or the values of b as entries. It returns none for prefixes, a wildcard
// and a key-only branch.
func (b *branch) entries() (all []descriptors.Entry) {
	for _, v := range b.spec.Values {
		all = append(all, descriptors.Entry{Key: b.spec.Key, Value: v})
	}
	if b.spec.Kind() == descriptors.Exact {
		all = append(all, b.spec.Entry)
	}
	return all
}

// general returns the more general branch for an exact entry, ignoring except and branches with the
// entry itself.
func (l *linter) general(ix *branchIndex, e descriptors.Entry, except *branch) *branch {
	if address, err := netip.ParseAddr(e.Value); err == nil && ix.prefixesByKey[e.Key] != nil {
		address = address.WithZone("").Unmap()
		if b := l.containing(ix, e.Key, netip.PrefixFrom(address, address.BitLen()), except); b != nil {
			return b
		}
	}
	return l.wildcardOrKeyOnly(ix, ix.wildcards, e)
}

// generalOfPrefix returns the more general branch for the addresses of p, ignoring except.
func (l *linter) generalOfPrefix(ix *branchIndex, key string, p netip.Prefix, except *branch) *branch {
	if b := l.containing(ix, key, p, except); b != nil {
		return b
	}
	// A wildcard matches all addresses of p only if it matches every value.
	return l.wildcardOrKeyOnly(ix, ix.wildcards, descriptors.Entry{Key: key, Value: "*"})
}

// containing returns the branch with the longest prefix that contains p, ignoring except; nil if
// there is none.
func (l *linter) containing(ix *branchIndex, key string, p netip.Prefix, except *branch) *branch {
	const steps = 100 // the comparisons that take as long as a search of prefixes
	if !l.take(steps) {
		return nil
	}
	if all := ix.prefixesByKey[key]; all != nil {
		for _, b := range all.Supernets(p) { // the longest first
			if b != except {
				return b
			}
		}
	}
	return nil
}

// wildcardOrKeyOnly returns the first of wildcards that covers e, else the key-only branch.
func (l *linter) wildcardOrKeyOnly(ix *branchIndex, wildcards []*branch, e descriptors.Entry) *branch {
	if w := l.firstWildcard(wildcards, e); w != nil {
		return w
	}
	return ix.keyOnly[e.Key]
}

// counterparts returns the branches of the level ix that match what c, of another level, matches.
// It contains a nil for each part of c without a counterpart.
func (l *linter) counterparts(ix *branchIndex, c *branch) (all []*branch) {
	for _, e := range c.entries() {
		l.take(1)
		b := ix.find(e)
		if b == nil {
			b = l.general(ix, e, nil)
		}
		all = append(all, b)
	}
	for _, p := range c.spec.Prefixes {
		all = append(all, l.generalOfPrefix(ix, c.spec.Key, p, nil))
	}
	if all == nil { // a wildcard, or key only
		all = append(all, l.wildcardOrKeyOnly(ix, ix.wildcards, c.spec.Entry))
	}
	return all
}
