package descriptors

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
)

// LimitHash identifies limit i of r by its domain, path, and name or index, but not by its numbers
// or algorithm. For an unlimited rule, pass 0.
func (r *Rule) LimitHash(i int) uint64 {
	sum := sha256.Sum256(appendTexts(append(r.identity(), 0), r.limitIdentity(i)))
	return binary.BigEndian.Uint64(sum[:])
}

// limitIdentity returns the name of limit i, or its index if the name is empty or repeats that of
// an earlier limit of r.
func (r *Rule) limitIdentity(i int) string {
	if i < 0 || i >= len(r.Limits) {
		return "name " + r.LimitName
	}
	name := r.Limits[i].Name
	if name == "" || slices.ContainsFunc(r.Limits[:i], func(l RateLimit) bool { return l.Name == name }) {
		return "index " + strconv.Itoa(i)
	}
	return "name " + name
}

// LimitByHash returns the rule and the index of the limit with a [Rule.LimitHash]; nil and 0 if
// there is none. It hashes every limit.
func (r *Rules) LimitByHash(hash uint64) (*Rule, int) {
	for rule := range r.All() {
		for i := range max(len(rule.Limits), 1) {
			if rule.LimitHash(i) == hash {
				return rule, i
			}
		}
	}
	return nil, 0
}
