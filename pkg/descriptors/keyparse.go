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
	kind       byte // a MatchKind, sharedWildcard, sharedValues, sharedPrefix or leaseMark
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
		case byte(Wildcard): // the rule's key and value, and the entry's value
			p.value, rest, ok = cutLast(rest, 3)
		case sharedWildcard: // the rule's key and value
			p.value, rest, ok = cutLast(rest, 2)
		default:
			p.value, rest, ok = cutRaw(rest)
		}
		parts = append(parts, p)
	}
	return parts, ok
}

// cutLast cuts n encoded texts with "=" between them, and returns the last one.
func cutLast(s string, n int) (last, rest string, ok bool) {
	for last, rest, ok = cutRaw(s); ok && n > 1; n-- {
		rest, ok = strings.CutPrefix(rest, "=")
		if ok {
			last, rest, ok = cutRaw(rest)
		}
	}
	return last, rest, ok
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
