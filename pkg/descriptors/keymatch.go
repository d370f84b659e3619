package descriptors

import (
	"slices"
	"strings"
)

// EntryMatcher returns a function that reports whether a [Key] is of the domain and contains the entry. Under a rule with prefixes, an
// address matches in each of its forms. The counter that several values share contains none of them, see share_threshold: it matches by
// the text that the key has instead, such as the prefix. The id of a lease is in no key, so no entry matches it.
func EntryMatcher(domain string, e Entry) func(key string) bool {
	// Texts are compared as keys have them: a long text is a hash there, and differs from the same hash sent as a text.
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
		pieces, ok := cutPieces(rest)
		return ok && slices.ContainsFunc(pieces, func(p piece) bool {
			return p.key == name && p.how != leaseMark && (p.value == value || p.how == byte(addresses) && p.value == address)
		})
	}
}

// A piece is an entry of a [Key] in the form that the key has: each text as appendText has written it.
type piece struct {
	key, value string
	how        byte // a matching, sharedWildcard, sharedPrefix or leaseMark
}

// cutPieces cuts the entries of a key, which follow its domain.
func cutPieces(rest string) (pieces []piece, ok bool) {
	for ok = true; ok && rest != ""; {
		if rest[0] != '|' {
			return nil, false
		}
		var p piece
		if p.key, rest, ok = cutRaw(rest[1:]); !ok || rest == "" {
			return nil, false
		}
		p.how, rest = rest[0], rest[1:]
		switch p.how {
		case leaseMark:
		case byte(wildcard), sharedWildcard:
			p.value, rest, ok = cutWildcard(rest, p.how == sharedWildcard)
		default:
			p.value, rest, ok = cutRaw(rest)
		}
		pieces = append(pieces, p)
	}
	return pieces, ok
}

// cutRaw cuts a text that appendText has written, and keeps its form.
func cutRaw(s string) (raw, rest string, ok bool) {
	_, rest, ok = cutText(s)
	return s[:len(s)-len(rest)], rest, ok
}
