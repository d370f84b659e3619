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
	byClaim       map[claim]*branch // nil until it is needed
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

// withClaim returns the branch with the claim c; nil if there is none.
func (ix *branchIndex) withClaim(c claim) *branch {
	if ix.byClaim == nil {
		ix.byClaim = map[claim]*branch{}
		for _, b := range ix.siblings {
			for _, of := range b.claims {
				ix.byClaim[of.claim] = b
			}
		}
	}
	return ix.byClaim[c]
}

// mayLimitBelow reports whether a branch below b may have limits.
func (b *branch) mayLimitBelow() bool { return b.hasLimits && len(b.children) > 0 }

// generals returns the branches of the level that would match b's requests if b did not exist, and
// that mayLimitBelow.
func (l *linter) generals(ix *branchIndex, b *branch) (all []*branch) {
	wildcards := ix.wildcards
	switch b.spec.Kind() {
	case descriptors.KeyOnly:
		return nil
	case descriptors.Wildcard:
		wildcards = wildcards[slices.Index(wildcards, b)+1:]
	}
	for _, c := range b.claims {
		if found := l.general(ix, wildcards, c.claim, b); found != nil && found.mayLimitBelow() {
			all = append(all, found)
		}
	}
	return all
}

// general returns the more general branch for c: one of the prefixes, without those of except, else
// one of wildcards, else the key-only branch. It is nil if none matches everything that c matches.
func (l *linter) general(ix *branchIndex, wildcards []*branch, c claim, except *branch) *branch {
	e, prefix := c.Entry, c.prefix
	if prefix.IsValid() {
		e.Value = "*" // a wildcard matches all addresses of a prefix only if it matches every value
	} else if address, err := netip.ParseAddr(e.Value); err == nil && ix.prefixesByKey[e.Key] != nil &&
		(descriptors.NodeSpec{Entry: e}).Kind() == descriptors.Exact { // a zone is any text, so the wildcard fe80::1%* parses too
		address = address.WithZone("").Unmap()
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.IsValid() {
		if b := l.containing(ix, e.Key, prefix, except); b != nil {
			return b
		}
	}
	if w := l.firstWildcard(wildcards, e); w != nil {
		return w
	}
	return ix.keyOnly[e.Key]
}

// containing returns the branch with the longest prefix that contains p, ignoring except; nil if
// there is none.
func (l *linter) containing(ix *branchIndex, key string, p netip.Prefix, except *branch) *branch {
	const steps = 100 // a search of prefixes counts as so many comparisons
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

// counterparts returns the branches of the level ix that match what c, of another level, matches.
// It contains a nil for each claim of c without a counterpart.
func (l *linter) counterparts(ix *branchIndex, c *branch) (all []*branch) {
	kind := c.spec.Kind()
	for _, part := range c.claims {
		l.take(1)
		var b *branch
		if kind == descriptors.Exact || kind == descriptors.Values {
			b = ix.withClaim(part.claim)
		}
		if b == nil {
			b = l.general(ix, ix.wildcards, part.claim, nil)
		}
		all = append(all, b)
	}
	return all
}
