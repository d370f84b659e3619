package rulesdiff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/replay"
)

// unmatched finds the new rules that a recording cannot judge. A recorder hashes the values that its rules match by key alone. A new
// rule that matches such a value exactly, by a list, a wildcard or a prefix never matches the hash.
type unmatched struct {
	rules map[string][]*candidate // by domain and keys
	wild  []*candidate            // those with a '*' in a key
	seen  map[string]bool         // requests with hashed values, see shape
	found map[*descriptors.Rule]string
	shape []byte
}

// maxShapes bounds unmatched.seen.
const maxShapes = 100_000

// A candidate is a new rule with at least one level that the old rules do not match by value.
type candidate struct {
	rule   *descriptors.Rule
	levels []descriptors.Level
	added  []bool // of each level: it matches by value, and the old rules do not
}

func newUnmatched(old, now *descriptors.Rules) *unmatched {
	u := &unmatched{rules: map[string][]*candidate{}, seen: map[string]bool{}, found: map[*descriptors.Rule]string{}}
	known := map[string]bool{}
	for rule := range old.All() {
		eachValue(rule.Domain, rule.Levels(), func(_ int, value string) { known[value] = true })
	}
	for rule := range now.All() {
		c := &candidate{rule: rule, levels: rule.Levels()}
		c.added = make([]bool, len(c.levels))
		eachValue(rule.Domain, c.levels, func(i int, value string) { c.added[i] = c.added[i] || !known[value] })
		if !slices.Contains(c.added, true) {
			continue
		}
		keys := []byte(rule.Domain)
		wild := false
		for _, l := range c.levels {
			keys = append(append(keys, 0), l.Key...)
			wild = wild || strings.Contains(l.Key, "*")
		}
		if wild {
			u.wild = append(u.wild, c)
			continue
		}
		u.rules[string(keys)] = append(u.rules[string(keys)], c)
	}
	return u
}

// eachValue calls f for each value, wildcard and prefix of the levels of a rule. The text has the domain and the keys up to the level.
func eachValue(domain string, levels []descriptors.Level, f func(level int, text string)) {
	keys := domain
	for i, l := range levels {
		keys += "\x00" + l.Key
		if strings.Trim(l.Value, "*") != "" { // '*' also matches hashes
			f(i, keys+"\x00="+l.Value)
		}
		for _, value := range l.Values {
			f(i, keys+"\x00="+value)
		}
		for _, prefix := range l.Prefixes {
			f(i, keys+"\x00/"+prefix.String())
		}
	}
}

// add notes the rules that the request could match if its values were not hashed.
func (u *unmatched) add(r *decide.Request) {
	if len(u.rules)+len(u.wild) == 0 {
		return
	}
	for i := range r.Descriptors {
		u.descriptor(r.Domain, r.Descriptors[i].Entries)
	}
}

func (u *unmatched) descriptor(domain string, entries []descriptors.Entry) {
	if !slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return replay.IsHashed(e.Value) }) {
		return
	}
	keys := append(u.shape[:0], domain...)
	for _, e := range entries {
		keys = append(append(keys, 0), e.Key...)
	}
	n := len(keys)
	for _, e := range entries {
		value := e.Value
		if replay.IsHashed(value) {
			value = "\x00"
		}
		keys = append(append(keys, 0), value...)
	}
	if u.shape = keys; u.seen[string(keys)] {
		return
	}
	if len(u.seen) < maxShapes {
		u.seen[string(keys)] = true
	}
	for _, c := range u.rules[string(keys[:n])] {
		u.try(c, domain, entries)
	}
	for _, c := range u.wild {
		u.try(c, domain, entries)
	}
}

// try notes the rule of a candidate if only a hashed value prevents the match. For a wildcard beside a plain value, it assumes a match.
func (u *unmatched) try(c *candidate, domain string, entries []descriptors.Entry) {
	if u.found[c.rule] != "" || c.rule.Domain != domain || len(c.levels) != len(entries) {
		return
	}
	key := ""
	for i, e := range entries {
		l := &c.levels[i]
		start, _, wild := strings.Cut(l.Key, "*")
		switch {
		case wild && !strings.HasPrefix(e.Key, start) || !wild && l.Key != e.Key:
			return
		case replay.IsHashed(e.Value):
			if c.added[i] {
				key = cmp.Or(key, e.Key)
			}
		case l.Value != "" && !strings.Contains(l.Value, "*") && l.Value != e.Value, len(l.Values) > 0 && !slices.Contains(l.Values, e.Value):
			return
		}
	}
	if key != "" {
		u.found[c.rule] = key
	}
}

// list returns the rules in the order of their domains and paths.
func (u *unmatched) list() []CannotMatch {
	all := []CannotMatch{}
	for rule, key := range u.found {
		all = append(all, CannotMatch{Domain: rule.Domain, Path: rule.Name, Source: rule.Source(), Key: key})
	}
	slices.SortFunc(all, func(a, b CannotMatch) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Source, b.Source))
	})
	return all
}
