package recording

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// An UnmatchableRule is a rule that a recording cannot judge, because the rule matches by value,
// and the recording has only hashes of the values of Key.
type UnmatchableRule struct {
	Domain      string `json:"domain"`
	Path        string `json:"path"`
	Source      string `json:"source"`
	Key         string `json:"key"`
	Descriptors int64  `json:"descriptors"` // descriptors that the rule could match if their values were plain
}

// An UnmatchableFinder finds the rules that a recording cannot judge. A recorder hashes the values
// that its rules match by key alone. A hash never equals such a value, so a new rule that matches
// the value exactly, by a list, a wildcard or a prefix would never match.
type UnmatchableFinder struct {
	rules map[string][]*valueRule // by domain and keys
	wild  []*valueRule            // those with a '*' in a key
	seen  map[string][]*valueRule // the rules of a descriptor with hashed values, by text
	text  []byte                  // a buffer: the domain, the keys and the values that are not hashed
}

// maxSeen bounds UnmatchableFinder.seen.
const maxSeen = 100_000

// A valueRule is a rule with at least one node that the known rules do not match by value.
type valueRule struct {
	rule  *descriptors.Rule
	nodes []descriptors.NodeSpec
	added []bool // by node: it matches by value, and the known rules do not
	found int64  // descriptors found
	key   string // the key of the first hashed value; "" if none was found
}

// NewUnmatchableFinder returns a finder for rules. known are the rules of the recorder, which never
// hashes a value that they match; known may be nil.
func NewUnmatchableFinder(rules, known *descriptors.Rules) *UnmatchableFinder {
	u := &UnmatchableFinder{rules: map[string][]*valueRule{}, seen: map[string][]*valueRule{}}
	plain := plainValues(known)
	for rule := range rules.All() {
		v := &valueRule{rule: rule, nodes: rule.Path()}
		v.added = make([]bool, len(v.nodes))
		for i := range v.nodes {
			same, wider := plain[restOf(rule.Domain, v.nodes, i, true)], plain[restOf(rule.Domain, v.nodes, i, false)]
			v.added[i] = slices.ContainsFunc(valuesOf(&v.nodes[i]), func(value string) bool { return !same[value] && !wider[value] })
		}
		if !slices.Contains(v.added, true) {
			continue
		}
		keys := []byte(rule.Domain)
		wild := false
		for _, n := range v.nodes {
			keys = append(append(keys, 0), n.Key...)
			wild = wild || strings.Contains(n.Key, "*")
		}
		if wild {
			u.wild = append(u.wild, v)
			continue
		}
		u.rules[string(keys)] = append(u.rules[string(keys)], v)
	}
	return u
}

// plainValues returns the values that rules match, by restOf. A recorder with these rules does not
// hash them.
func plainValues(rules *descriptors.Rules) map[[sha256.Size]byte]map[string]bool {
	plain := map[[sha256.Size]byte]map[string]bool{}
	for rule := range rules.All() {
		nodes := rule.Path()
		for i := range nodes {
			rest := restOf(rule.Domain, nodes, i, true)
			if plain[rest] == nil {
				plain[rest] = map[string]bool{}
			}
			for _, value := range valuesOf(&nodes[i]) {
				plain[rest][value] = true
			}
		}
	}
	return plain
}

// valuesOf returns the values, wildcards and prefixes of a node; none if it matches any value.
func valuesOf(n *descriptors.NodeSpec) (all []string) {
	if strings.Trim(n.Value, "*") != "" { // '*' also matches hashes
		all = append(all, "="+n.Value)
	}
	for _, value := range n.Values {
		all = append(all, "="+value)
	}
	for _, prefix := range n.Prefixes {
		all = append(all, "/"+prefix.String())
	}
	return all
}

// restOf returns a hash of a rule without the values of one node. A recorder leaves a value plain
// only if a rule matches the whole descriptor. So the hash is of the domain, the keys of all
// nodes, and the values of the other nodes. Without values, it is as if the other nodes matched any
// value.
func restOf(domain string, nodes []descriptors.NodeSpec, except int, values bool) [sha256.Size]byte {
	text := []byte(domain)
	for i := range nodes {
		text = append(append(append(text, 0), nodes[i].Key...), 0)
		var others []string
		if values && i != except {
			others = valuesOf(&nodes[i])
		}
		text = fmt.Appendf(text, "%q", others)
	}
	return sha256.Sum256(text)
}

// Add records the rules that the request could match if its values were not hashed.
func (u *UnmatchableFinder) Add(r *decide.Request) {
	if len(u.rules)+len(u.wild) == 0 {
		return
	}
	for i := range r.Descriptors {
		u.addDescriptor(r.Domain, r.Descriptors[i].Entries)
	}
}

func (u *UnmatchableFinder) addDescriptor(domain string, entries []descriptors.Entry) {
	if !slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return IsHashed(e.Value) }) {
		return
	}
	text := append(u.text[:0], domain...)
	for _, e := range entries {
		text = append(append(text, 0), e.Key...)
	}
	n := len(text)
	for _, e := range entries {
		value := e.Value
		if IsHashed(value) {
			value = "\x00"
		}
		text = append(append(text, 0), value...)
	}
	u.text = text
	found, known := u.seen[string(text)]
	if !known {
		for _, v := range slices.Concat(u.rules[string(text[:n])], u.wild) {
			if key := v.hashedKey(domain, entries); key != "" {
				v.key = cmp.Or(v.key, key)
				found = append(found, v)
			}
		}
		if len(u.seen) < maxSeen {
			u.seen[string(text)] = found
		}
	}
	for _, v := range found {
		v.found++
	}
}

// hashedKey returns the key of a hashed value if only hashed values prevent a match, or "". It
// assumes that a wildcard beside a plain value matches.
func (v *valueRule) hashedKey(domain string, entries []descriptors.Entry) string {
	if v.rule.Domain != domain || len(v.nodes) != len(entries) {
		return ""
	}
	key := ""
	for i, e := range entries {
		n := &v.nodes[i]
		start, _, wild := strings.Cut(n.Key, "*")
		switch {
		case wild && !strings.HasPrefix(e.Key, start) || !wild && n.Key != e.Key:
			return ""
		case IsHashed(e.Value):
			switch {
			case v.added[i]:
				key = cmp.Or(key, e.Key)
			case len(valuesOf(n)) > 0:
				return "" // the recorder leaves these values plain, so this is another one
			}
		case n.Value != "" && !strings.Contains(n.Value, "*") && n.Value != e.Value, len(n.Values) > 0 && !slices.Contains(n.Values, e.Value):
			return ""
		}
	}
	return key
}

// List returns the rules that Add found, in the order of their domains and paths. It omits rules
// for which matched returns true. Such a rule matches a request of the recording, so the recorder
// knew the rule and hashed other values. matched may be nil.
func (u *UnmatchableFinder) List(matched func(*descriptors.Rule) bool) []UnmatchableRule {
	all := []UnmatchableRule{}
	for _, v := range slices.Concat(append(slices.Collect(maps.Values(u.rules)), u.wild)...) {
		if v.key != "" && (matched == nil || !matched(v.rule)) {
			all = append(all, UnmatchableRule{Domain: v.rule.Domain, Path: v.rule.Name, Source: v.rule.Source(), Key: v.key, Descriptors: v.found})
		}
	}
	slices.SortFunc(all, func(a, b UnmatchableRule) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Source, b.Source))
	})
	return all
}
