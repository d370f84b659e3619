package rulesfile

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// maxLintSteps bounds the comparisons of rules in one domain to about a third of a second. Then lint stops comparing.
const maxLintSteps = 1_000_000

// A branch is a descriptor with its position and the descriptors below it.
type branch struct {
	by     *reader
	key    *yaml.Node
	level  descriptors.Level
	claims []claimed
	rule   *descriptors.Rule // nil: no limit here
	below  []*branch
	limits bool   // a rule here or below limits
	index  *index // of below; nil until it is needed
}

func (b *branch) point() point { return b.by.point(b.key) }

// String returns what b matches, such as 'action: login'.
func (b *branch) String() string {
	const maximum = 3 // items of a list
	value, items := b.level.Value, slices.Clone(b.level.Values[:min(len(b.level.Values), maximum)])
	for _, p := range b.level.Prefixes[:min(len(b.level.Prefixes), maximum)] {
		items = append(items, p.String())
	}
	if len(b.level.Values)+len(b.level.Prefixes) > maximum {
		items = append(items, "...")
	}
	if len(items) > 0 {
		value = "[" + strings.Join(items, ", ") + "]"
	}
	if value == "" {
		return "'" + short(b.level.Key) + "'"
	}
	return "'" + short(b.level.Key+": "+value) + "'"
}

// A linter searches one domain for rules that can never match, and for rules that hide others.
type linter struct {
	*build
	steps  int
	spelt  map[spelt]*branch // where each spelling of a key was first met
	warned map[spelt]bool
}

// A spelt is a key at a level of the domain.
type spelt struct {
	depth int
	key   string
}

// lint warns about rules that load and do not limit as they seem to.
func (b *build) lint() {
	for _, domain := range slices.Sorted(maps.Keys(b.domains)) {
		l := &linter{b, maxLintSteps, map[spelt]*branch{}, map[spelt]bool{}}
		root := b.domains[domain].root.branch
		root.sum()
		l.walk(root, 0)
	}
}

// sum sets limits in b and in all branches below it.
func (b *branch) sum() {
	b.limits = b.rule != nil && !b.rule.Unlimited
	for _, c := range b.below {
		c.sum()
		b.limits = b.limits || c.limits
	}
}

func (l *linter) walk(b *branch, depth int) {
	for _, c := range b.below {
		l.similar(c, depth)
	}
	if len(b.below) > 1 {
		l.unreachable(b.children())
		l.coveredPrefixes(b.children())
		for _, c := range b.below {
			if b.children().hides {
				l.hiding(b.children(), c)
			}
		}
	}
	for _, c := range b.below {
		l.walk(c, depth+1)
	}
}

// similar warns about a key that another key of the same level differs from only in case, '-' or '_'. It warns once for each
// spelling. Keys with a '/' come from control planes, which choose them by other rules.
func (l *linter) similar(b *branch, depth int) {
	key := b.level.Key
	if strings.ContainsAny(key, "*/") {
		return
	}
	plain := spelt{depth, strings.ReplaceAll(strings.ToLower(key), "-", "_")}
	first := l.spelt[plain]
	switch {
	case first == nil:
		l.spelt[plain] = b
	case first.level.Key != key && !l.warned[spelt{depth, key}]:
		l.warned[spelt{depth, key}] = true
		b.by.warn(similarKey, b.key, "write the key that Envoy sends in both rules", "the key '%s' differs from '%s' on %s only in case or in '-' and '_', "+
			"and matches other requests", short(key), short(first.level.Key), b.by.where(first.point()))
	}
}

// unreachable warns about wildcards behind a wildcard, and keys without a value beside a wildcard, that matches all that they match.
func (l *linter) unreachable(ix *index) {
	for i, later := range ix.wild {
		for _, first := range ix.wild[:i] {
			if l.steps--; l.steps < 0 {
				return
			}
			if first.level.Covers(later.level.Entry) {
				later.by.warn(unreachableRule, later.key, "move this rule before that one", "unreachable, shadowed by %s: %v comes first and matches "+
					"everything that this rule matches", later.by.where(first.point()), first)
				break
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ix.byName)) {
		b := ix.byName[name]
		if first := l.firstWild(ix.wild, b.level.Entry); first != nil {
			b.by.warn(unreachableRule, b.key, "remove one of the two rules", "unreachable, shadowed by %s: %v matches every value, and wildcards are "+
				"tried before the key alone", b.by.where(first.point()), first)
		}
	}
}

// firstWild returns the first of the wildcards that covers e, nil if none does.
func (l *linter) firstWild(wild []*branch, e descriptors.Entry) *branch {
	for _, w := range wild {
		if l.steps--; l.steps < 0 {
			return nil
		}
		if w.level.Covers(e) {
			return w
		}
	}
	return nil
}

// coveredPrefixes warns about prefixes whose addresses all have a longer prefix, in part of another rule.
func (l *linter) coveredPrefixes(ix *index) {
	for _, name := range slices.Sorted(maps.Keys(ix.byIP)) {
		all := ix.byIP[name]
		for _, prefix := range slices.SortedFunc(maps.Keys(all.of), netip.Prefix.Compare) {
			b, others := all.of[prefix], map[*branch]bool{}
			low, high := halves(prefix)
			if prefix.IsSingleIP() || !l.isCovered(all, low, others) || !l.isCovered(all, high, others) {
				continue
			}
			delete(others, b)
			if len(others) == 0 {
				continue // the list repeats itself, which changes nothing
			}
			var lines []string
			for _, other := range slices.SortedFunc(maps.Keys(others), comparePoints) {
				lines = append(lines, b.by.where(other.point()))
			}
			b.by.warn(overlappingCIDR, b.claim(prefix), "remove it", "the prefix %s can never match, because longer prefixes cover all its addresses: %s",
				prefix, strings.Join(lines, ", "))
		}
	}
}

func comparePoints(a, b *branch) int {
	at := func(b *branch) Fault { return Fault{File: b.by.file, Line: b.key.Line, Column: b.key.Column} }
	return at(a).compare(at(b))
}

// claim returns the node of one of the prefixes of b.
func (b *branch) claim(prefix netip.Prefix) *yaml.Node {
	for _, c := range b.claims {
		if c.prefix && c.Value == prefix.String() {
			return c.node
		}
	}
	return b.key
}

// isCovered reports whether each address of p has a prefix at least as long as p, and adds the branches of these prefixes to by.
func (l *linter) isCovered(all *prefixes, p netip.Prefix, by map[*branch]bool) bool {
	if l.steps--; l.steps < 0 {
		return false
	}
	if b := all.of[p]; b != nil {
		by[b] = true
		return true
	}
	if p.IsSingleIP() || !all.hasPart(p) {
		return false
	}
	low, high := halves(p)
	return l.isCovered(all, low, by) && l.isCovered(all, high, by)
}

// halves returns the two prefixes that are one bit longer. For one address it returns that address twice.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	if p.IsSingleIP() {
		return p, p
	}
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	address, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(address, p.Bits()+1)
}

// hiding warns if b takes requests from a more general rule whose descriptors limit them, and those of b do not.
func (l *linter) hiding(ix *index, b *branch) {
	for _, general := range l.generals(ix, b) {
		if b.suffices(general) {
			continue
		}
		path := l.missing(b, general)
		if path == nil || l.steps < 0 {
			continue
		}
		var texts []string
		for _, c := range path {
			texts = append(texts, c.String())
		}
		id, lost := hiddenBranch, path[len(path)-1]
		if len(b.level.Prefixes) > 0 && len(general.level.Prefixes) > 0 {
			id = overlappingCIDR
		}
		text := strings.Join(texts, ", ")
		b.by.warn(id, b.key, "repeat "+text+" below this rule", "%v hides the rule on %s, which limits %s on %s: below this rule, these requests have no limit",
			b, b.by.where(general.point()), text, b.by.where(lost.point()))
		return
	}
}

// suffices reports whether b needs no descriptors below it, although general has some. Without a limit, b exempts its matches on purpose.
// With one, and if general has a limit of its own, Envoy sends the descriptor that b limits, too.
func (b *branch) suffices(general *branch) bool {
	return len(b.below) == 0 && (!b.limits || general.rule != nil)
}

// missing returns the path of a limit below general that the descriptors below b lack, nil if there is none.
func (l *linter) missing(b, general *branch) []*branch {
	for _, c := range general.below {
		if !c.limits || l.steps < 0 {
			continue
		}
		for _, own := range l.counterparts(b.children(), c) {
			switch {
			case own == nil:
				return []*branch{c}
			case own.suffices(c):
			case c.rule != nil && !c.rule.Unlimited && own.rule == nil:
				return []*branch{c}
			default:
				if path := l.missing(own, c); path != nil {
					return append([]*branch{c}, path...)
				}
			}
		}
	}
	return nil
}
