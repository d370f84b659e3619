package descriptors

import (
	"crypto/sha256"
	"strconv"
	"strings"
)

// ParseKey returns the domain and the entries of a [Key], or false if key is malformed. A hashed
// text is returned as "#" and its digits. The value of a shared counter is its shared text: the
// wildcard, the smallest value of the list, or the prefix. The value of a lease id is empty.
func ParseKey(key string) (domain string, entries []Entry, ok bool) {
	domain, rest, ok := cutText(key)
	if !ok {
		return "", nil, false
	}
	parts, ok := cutKeyParts(rest)
	if !ok {
		return "", nil, false
	}
	for _, p := range parts {
		e := Entry{}
		e.Key, _, _ = cutText(p.key)
		if p.kind != leaseMark {
			e.Value, _, _ = cutText(p.value)
		}
		entries = append(entries, e)
	}
	return domain, entries, true
}

// A keyPart is one entry of a [Key], with its texts as appendText encodes them.
type keyPart struct {
	key, value string
	kind       byte // a matchKind, sharedWildcard, sharedValues, sharedPrefix or leaseMark
}

// cutKeyParts splits the part of a key after its domain into entries.
func cutKeyParts(rest string) (parts []keyPart, ok bool) {
	for ok = true; ok && rest != ""; {
		if rest[0] != '|' {
			return nil, false
		}
		var p keyPart
		p.key, rest, ok = cutRaw(rest[1:])
		if !ok || rest == "" {
			return nil, false
		}
		p.kind, rest = rest[0], rest[1:]
		switch p.kind {
		case leaseMark:
		case byte(wildcard), sharedWildcard:
			p.value, rest, ok = cutWildcard(rest, p.kind == sharedWildcard)
		default:
			p.value, rest, ok = cutRaw(rest)
		}
		parts = append(parts, p)
	}
	return parts, ok
}

// cutWildcard cuts the rule's key and value and, unless shared, the entry's value. It returns the
// last of them.
func cutWildcard(s string, shared bool) (value, rest string, ok bool) {
	parts := 3
	if shared {
		parts = 2
	}
	for i := range parts {
		if i > 0 {
			if rest == "" || rest[0] != '=' {
				return "", "", false
			}
			s = rest[1:]
		}
		if value, rest, ok = cutRaw(s); !ok {
			return "", "", false
		}
	}
	return value, rest, true
}

// cutRaw cuts an encoded text without decoding it.
func cutRaw(s string) (raw, rest string, ok bool) {
	_, rest, ok = cutText(s)
	return s[:len(s)-len(rest)], rest, ok
}

// cutText cuts and decodes a text that appendText has encoded.
func cutText(s string) (text, rest string, ok bool) {
	const hashedLen = 1 + 2*sha256.Size
	if strings.HasPrefix(s, "#") {
		if len(s) < hashedLen {
			return "", "", false
		}
		return s[:hashedLen], s[hashedLen:], true
	}
	digits, rest, found := strings.Cut(s, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !found || err != nil || n > uint64(len(rest)) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
