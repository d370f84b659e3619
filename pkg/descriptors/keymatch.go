package descriptors

import (
	"slices"
	"strings"
)

// notOneValue are the kinds of parts of a key that stand for several values, or for none.
const notOneValue = string(sharedWildcard) + string(sharedValues) + string(sharedPrefix) + string(leaseMark)

// EntryMatcher returns a function that reports whether a [Key] belongs to the domain and contains
// e. Under a rule with prefixes, it compares canonical addresses. Lease ids, and values that share
// a counter, never match.
func EntryMatcher(domain string, e Entry) func(key string) bool {
	// Comparing encoded texts keeps a hashed text distinct from the same hash sent as plain text.
	start := string(appendText(nil, domain))
	name, value := string(appendText(nil, e.Key)), string(appendText(nil, e.Value))
	address := value
	if a, ok := parseAddress(e.Value); ok {
		address = string(appendText(nil, a.String()))
	}
	return func(key string) bool {
		rest, ok := strings.CutPrefix(key, start)
		if !ok || !strings.Contains(rest, name) {
			return false
		}
		parts, ok := cutKeyParts(rest)
		return ok && slices.ContainsFunc(parts, func(p keyPart) bool {
			return p.key == name && strings.IndexByte(notOneValue, p.kind) < 0 && (p.value == value || p.kind == byte(Prefixes) && p.value == address)
		})
	}
}
