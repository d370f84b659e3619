package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// EntryMatcher returns a function that reports whether a [Key] is of the domain and contains the entry. An address matches in each of
// its forms. The counter that several values share contains none of them, see share_threshold: it matches by the text that the key
// has instead, such as the prefix.
func EntryMatcher(domain string, e Entry) func(key string) bool {
	start := string(appendText(nil, domain)) + "|"
	name, value := shown(e.Key), shown(e.Value)
	address := value
	if a, ok := parseAddress(e.Value); ok {
		address = a.String()
	}
	contains := string(appendText(nil, e.Key))
	return func(key string) bool {
		if !strings.HasPrefix(key, start) || !strings.Contains(key[len(start)-1:], contains) {
			return false
		}
		_, entries, ok := ParseKey(key)
		if !ok {
			return false
		}
		for i := range entries {
			if entries[i].Key == name && (entries[i].Value == value || entries[i].Value == address) {
				return true
			}
		}
		return false
	}
}

// shown returns a text as ParseKey returns it.
func shown(s string) string {
	if len(s) <= maxComponent {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "#" + hex.EncodeToString(sum[:])
}
