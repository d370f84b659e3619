package rulesfile

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/gaissmai/bart"
	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// maxLintSteps bounds the comparisons of rules in one domain. Beyond it, lint stops.
const maxLintSteps = 1_000_000

// A branch is a rule of the file with the rules below it, or the root of its domain. The root has
// only node, domain, children and hasLimits.
type branch struct {
	node   *descriptors.Node
	domain string
	path   []descriptors.Entry // a rule with a list has only its key

	// The linter reads these fields.
	reader    *reader
	key       *yaml.Node
	spec      descriptors.NodeSpec
	claims    []claimAt
	rule      *descriptors.Rule // nil if b has no limits
	children  []*branch         // none in a generated file, which nobody edits by hand
	hasLimits bool              // b or a branch below it has limits
	index     *branchIndex      // finds a branch in children; built on first use

	fromOverlay []string // the keys of the rate_limit that the overlay sets
}

func (b *branch) position() position { return b.reader.positionOf(b.key) }

// String returns the entry of b, such as 'action: login'.
func (b *branch) String() string {
	const maximum = 3 // items of a list
	value, items := b.spec.Value, slices.Clone(b.spec.Values[:min(len(b.spec.Values), maximum)])
	for _, p := range b.spec.Prefixes[:min(len(b.spec.Prefixes), maximum)] {
		items = append(items, p.String())
	}
	if len(b.spec.Values)+len(b.spec.Prefixes) > maximum {
		items = append(items, "...")
	}
	if len(items) > 0 {
		value = "[" + strings.Join(items, ", ") + "]"
	}
	if value == "" {
		return "'" + excerpt(b.spec.Key) + "'"
	}
	return "'" + excerpt(b.spec.Key+": "+value) + "'"
}

// A linter searches one domain for rules that never match and for rules that hide others.
type linter struct {
	stepsLeft int                    // of maxLintSteps; less than 0 when they are used up
	first     map[keyAtDepth]*branch // the first branch of each normalized key
	warned    map[keyAtDepth]bool
}

// take takes n steps. It returns false if they are used up.
func (l *linter) take(n int) bool {
	l.stepsLeft -= n
	return !l.isDone()
}

// isDone reports whether the steps are used up.
func (l *linter) isDone() bool { return l.stepsLeft < 0 }

// A keyAtDepth is a key at a level of the domain.
type keyAtDepth struct {
	depth int
	key   string
}

// lint warns about valid rules that probably do not have the intended effect.
func (b *build) lint() {
	for _, domain := range slices.Sorted(maps.Keys(b.domains)) {
		l := &linter{maxLintSteps, map[keyAtDepth]*branch{}, map[keyAtDepth]bool{}}
		l.walk(b.domains[domain].root, 0)
	}
}

func (l *linter) walk(b *branch, depth int) {
	for _, c := range b.children {
		l.warnSimilarKeys(c, depth)
	}
	if len(b.children) > 1 {
		ix := b.childIndex()
		l.warnUnreachable(ix)
		l.warnCoveredPrefixes(ix)
		if ix.hasGenerals {
			for _, c := range b.children {
				l.warnHiding(ix, c)
			}
		}
	}
	for _, c := range b.children {
		l.walk(c, depth+1)
	}
}

// warnSimilarKeys warns, once for each spelling, about a key that differs from another key of its
// level only in case, '-' or '_'. It skips keys with a '/', which control planes generate.
func (l *linter) warnSimilarKeys(b *branch, depth int) {
	key := b.spec.Key
	if strings.ContainsAny(key, "*/") {
		return
	}
	plain := keyAtDepth{depth, strings.ReplaceAll(strings.ToLower(key), "-", "_")}
	first := l.first[plain]
	switch {
	case first == nil:
		l.first[plain] = b
	case first.spec.Key != key && !l.warned[keyAtDepth{depth, key}]:
		l.warned[keyAtDepth{depth, key}] = true
		b.reader.warn(similarKey, b.key,
			fmt.Sprintf("the key '%s' differs from '%s' on %s only in case or in '-' and '_', and matches other requests",
				excerpt(key), excerpt(first.spec.Key), b.reader.positionText(first.position())),
			"write the key that Envoy sends in both rules")
	}
}

// warnUnreachable warns about wildcards that an earlier wildcard covers, and about keys without a
// value that a wildcard covers.
func (l *linter) warnUnreachable(ix *branchIndex) {
	for i, later := range ix.wildcards {
		if first := l.firstWildcard(ix.wildcards[:i], later.spec.Entry); first != nil {
			where := later.reader.positionText(first.position())
			later.reader.warn(unreachableRule, later.key,
				fmt.Sprintf("unreachable, shadowed by %s: %v comes first and matches everything that this rule matches", where, first),
				"move this rule before "+where)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ix.keyOnly)) {
		b := ix.keyOnly[key]
		if first := l.firstWildcard(ix.wildcards, b.spec.Entry); first != nil {
			b.reader.warn(unreachableRule, b.key,
				fmt.Sprintf("unreachable, shadowed by %s: %v matches every value, and wildcards are tried before the key alone",
					b.reader.positionText(first.position()), first),
				"remove one of the two rules")
		}
	}
}

// firstWildcard returns the first wildcard that covers e; nil if none does.
func (l *linter) firstWildcard(wildcards []*branch, e descriptors.Entry) *branch {
	for _, w := range wildcards {
		if !l.take(1) {
			return nil
		}
		if w.spec.Covers(e) {
			return w
		}
	}
	return nil
}

// warnCoveredPrefixes warns about a prefix that never matches, because longer prefixes, some of
// other rules, cover all of its addresses.
func (l *linter) warnCoveredPrefixes(ix *branchIndex) {
	for _, name := range slices.Sorted(maps.Keys(ix.prefixesByKey)) {
		all := ix.prefixesByKey[name]
		for prefix, b := range all.AllSorted() {
			others := map[*branch]bool{}
			if prefix.IsSingleIP() || !l.isCoveredByHalves(all, prefix, others) {
				continue
			}
			delete(others, b)
			if len(others) == 0 {
				continue // a prefix repeated in its own list
			}
			var lines []string
			for _, other := range slices.SortedFunc(maps.Keys(others), compareByPosition) {
				lines = append(lines, b.reader.positionText(other.position()))
			}
			b.reader.warn(overlappingCIDR, b.nodeOf(prefix),
				fmt.Sprintf("the prefix %s can never match, because longer prefixes cover all its addresses: %s",
					prefix, strings.Join(lines, ", ")),
				"remove it")
		}
	}
}

func compareByPosition(a, b *branch) int {
	return cmp.Or(strings.Compare(a.reader.file, b.reader.file), cmp.Compare(a.key.Line, b.key.Line), cmp.Compare(a.key.Column, b.key.Column))
}

// nodeOf returns the node of prefix in b.
func (b *branch) nodeOf(prefix netip.Prefix) *yaml.Node {
	for _, c := range b.claims {
		if c.prefix == prefix {
			return c.node
		}
	}
	return b.key
}

// isCovered reports whether every address of p has a prefix at least as long as p. It adds the
// branches of these prefixes to covering.
func (l *linter) isCovered(all *bart.Table[*branch], p netip.Prefix, covering map[*branch]bool) bool {
	if !l.take(1) {
		return false
	}
	if b, found := all.Get(p); found {
		covering[b] = true
		return true
	}
	return !p.IsSingleIP() && hasPart(all, p) && l.isCoveredByHalves(all, p, covering)
}

// hasPart reports whether all has p or a part of it.
func hasPart(all *bart.Table[*branch], p netip.Prefix) bool {
	for range all.Subnets(p) {
		return true
	}
	return false
}

// isCoveredByHalves is isCovered for each half of p, which is not a single address.
func (l *linter) isCoveredByHalves(all *bart.Table[*branch], p netip.Prefix, covering map[*branch]bool) bool {
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	high, _ := netip.AddrFromSlice(bytes)
	return l.isCovered(all, netip.PrefixFrom(p.Addr(), p.Bits()+1), covering) &&
		l.isCovered(all, netip.PrefixFrom(high, p.Bits()+1), covering)
}

// warnHiding warns if b matches requests that a more general rule would limit below it, and that
// nothing below b limits.
func (l *linter) warnHiding(ix *branchIndex, b *branch) {
	for _, general := range l.generals(ix, b) {
		if b.suffices(general) {
			continue
		}
		path := l.missing(b, general)
		if path == nil || l.isDone() {
			continue
		}
		var texts []string
		for _, c := range path {
			texts = append(texts, c.String())
		}
		id, lost := hiddenBranch, path[len(path)-1]
		if len(b.spec.Prefixes) > 0 && len(general.spec.Prefixes) > 0 {
			id = overlappingCIDR
		}
		text := strings.Join(texts, ", ")
		b.reader.warn(id, b.key,
			fmt.Sprintf("%v hides the rule on %s, which limits %s on %s: below this rule, these requests have no limit",
				b, b.reader.positionText(general.position()), text, b.reader.positionText(lost.position())),
			"repeat "+text+" below this rule")
		return
	}
}

// suffices reports whether b, unlike general, needs no descriptors below it. A branch without a
// limit exempts its matches on purpose. If b and general both have limits, Envoy sends the shorter
// descriptor too.
func (b *branch) suffices(general *branch) bool {
	return len(b.children) == 0 && (!b.hasLimits || general.rule != nil)
}

// missing returns the path of a limit below general that b lacks; nil if there is none.
func (l *linter) missing(b, general *branch) []*branch {
	for _, c := range general.children {
		if !c.hasLimits || l.isDone() {
			continue
		}
		for _, counterpart := range l.counterparts(b.childIndex(), c) {
			switch {
			case counterpart == nil:
				return []*branch{c}
			case counterpart.suffices(c):
			case c.rule != nil && !c.rule.Unlimited && counterpart.rule == nil:
				return []*branch{c}
			default:
				if path := l.missing(counterpart, c); path != nil {
					return append([]*branch{c}, path...)
				}
			}
		}
	}
	return nil
}
