package descriptors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// KeyHash returns an identifier of a [Key] that is safe to log: 16 lower-case hexadecimal digits of its SHA-256 or, if secret is
// not empty, of its HMAC-SHA-256. It is the same on all replicas. Without a secret, a reader can confirm a guessed key.
func KeyHash(secret []byte, key string) string {
	if len(secret) == 0 {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:8])
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// ParseKey returns the domain and the entries of a [Key], or false if key is malformed. A hashed text is returned as "#" and its
// digits. The value of a shared counter is its shared text: the wildcard, the smallest value of the list, or the prefix. The value
// of a lease id is empty.
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

var escapeArgument = strings.NewReplacer(`\`, `\\`, ",", `\,`, "=", `\=`)

// KeyText returns the entries of a [Key] as the arguments of weir have them: user_id=42,action=login. It returns any other text unchanged.
func KeyText(key string) string {
	_, entries, ok := ParseKey(key)
	if !ok {
		return key
	}
	parts := make([]string, len(entries))
	for i, e := range entries {
		parts[i] = escapeArgument.Replace(e.Key) + "=" + escapeArgument.Replace(e.Value)
	}
	return strings.Join(parts, ",")
}

// cutWildcard cuts the rule's key and value and, unless shared, the entry's value. It returns the last of them.
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

// cutText cuts and decodes a text that appendText has encoded.
func cutText(s string) (text, rest string, ok bool) {
	const hashed = 1 + 2*sha256.Size
	if strings.HasPrefix(s, "#") {
		if len(s) < hashed {
			return "", "", false
		}
		return s[:hashed], s[hashed:], true
	}
	digits, rest, found := strings.Cut(s, ":")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !found || err != nil || n > uint64(len(rest)) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
