package replay

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A CannotMatch is a rule that a recording cannot judge, because the rule matches by value, and the
// recording has only hashes of the values of Key.
type CannotMatch struct {
	Domain      string `json:"domain"`
	Path        string `json:"path"`
	Source      string `json:"source"`
	Key         string `json:"key"`
	Descriptors int64  `json:"descriptors"` // descriptors that the rule could match if their values were plain
}

// A Hashed finds the rules that a recording cannot judge. A recorder hashes the values that its
// rules match by key alone. A hash never equals such a value, so a new rule that matches the value
// exactly, by a list, a wildcard or a prefix would never match.
type Hashed struct {
	rules map[string][]*valueRule // by domain and keys
	wild  []*valueRule            // those with a '*' in a key
	seen  map[string][]*valueRule // the rules for descriptors with hashed values, see shape
	shape []byte
}

// maxShapes bounds Hashed.seen.
const maxShapes = 100_000

// A valueRule is a rule with at least one level that the known rules do not match by value.
type valueRule struct {
	rule   *descriptors.Rule
	levels []descriptors.Level
	added  []bool // by level: it matches by value, and the known rules do not
	found  int64  // descriptors found
	key    string // the key of the first hashed value; "" if none was found
}

// NewHashed returns a Hashed for rules. known are the rules of the recorder, which never hashes a
// value that they match; known may be nil.
func NewHashed(rules, known *descriptors.Rules) *Hashed {
	h := &Hashed{rules: map[string][]*valueRule{}, seen: map[string][]*valueRule{}}
	plain := map[string]bool{}
	for rule := range known.All() {
		eachValue(rule.Domain, rule.Levels(), func(_ int, value string) { plain[value] = true })
	}
	for rule := range rules.All() {
		v := &valueRule{rule: rule, levels: rule.Levels()}
		v.added = make([]bool, len(v.levels))
		eachValue(rule.Domain, v.levels, func(i int, value string) { v.added[i] = v.added[i] || !plain[value] })
		if !slices.Contains(v.added, true) {
			continue
		}
		keys := []byte(rule.Domain)
		wild := false
		for _, l := range v.levels {
			keys = append(append(keys, 0), l.Key...)
			wild = wild || strings.Contains(l.Key, "*")
		}
		if wild {
			h.wild = append(h.wild, v)
			continue
		}
		h.rules[string(keys)] = append(h.rules[string(keys)], v)
	}
	return h
}

// eachValue calls f for each value, wildcard and prefix of the levels of a rule. The text is
// unique, because it contains the domain, the keys up to the level, and the value.
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

// Add records the rules that the request could match if its values were not hashed.
func (h *Hashed) Add(r *decide.Request) {
	if len(h.rules)+len(h.wild) == 0 {
		return
	}
	for i := range r.Descriptors {
		h.descriptor(r.Domain, r.Descriptors[i].Entries)
	}
}

func (h *Hashed) descriptor(domain string, entries []descriptors.Entry) {
	if !slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return IsHashed(e.Value) }) {
		return
	}
	keys := append(h.shape[:0], domain...)
	for _, e := range entries {
		keys = append(append(keys, 0), e.Key...)
	}
	n := len(keys)
	for _, e := range entries {
		value := e.Value
		if IsHashed(value) {
			value = "\x00"
		}
		keys = append(append(keys, 0), value...)
	}
	h.shape = keys
	found, known := h.seen[string(keys)]
	if !known {
		for _, v := range slices.Concat(h.rules[string(keys[:n])], h.wild) {
			if key := v.hashedKey(domain, entries); key != "" {
				v.key = cmp.Or(v.key, key)
				found = append(found, v)
			}
		}
		if len(h.seen) < maxShapes {
			h.seen[string(keys)] = found
		}
	}
	for _, v := range found {
		v.found++
	}
}

// hashedKey returns the key of a hashed value if only hashed values prevent a match, or "". It
// assumes that a wildcard beside a plain value matches.
func (v *valueRule) hashedKey(domain string, entries []descriptors.Entry) string {
	if v.rule.Domain != domain || len(v.levels) != len(entries) {
		return ""
	}
	key := ""
	for i, e := range entries {
		l := &v.levels[i]
		start, _, wild := strings.Cut(l.Key, "*")
		switch {
		case wild && !strings.HasPrefix(e.Key, start) || !wild && l.Key != e.Key:
			return ""
		case IsHashed(e.Value):
			if v.added[i] {
				key = cmp.Or(key, e.Key)
			}
		case l.Value != "" && !strings.Contains(l.Value, "*") && l.Value != e.Value, len(l.Values) > 0 && !slices.Contains(l.Values, e.Value):
			return ""
		}
	}
	return key
}

// List returns the rules that Add found, in the order of their domains and paths. It omits rules
// for which matched returns true. Such a rule matches a request of the recording, so the recorder
// knew the rule and hashed other values. matched may be nil.
func (h *Hashed) List(matched func(*descriptors.Rule) bool) []CannotMatch {
	all := []CannotMatch{}
	for _, v := range slices.Concat(append(slices.Collect(maps.Values(h.rules)), h.wild)...) {
		if v.key != "" && (matched == nil || !matched(v.rule)) {
			all = append(all, CannotMatch{Domain: v.rule.Domain, Path: v.rule.Name, Source: v.rule.Source(), Key: v.key, Descriptors: v.found})
		}
	}
	slices.SortFunc(all, func(a, b CannotMatch) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Source, b.Source))
	})
	return all
}
