package descriptors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// KeyHash identifies a [Key] without its text, as 16 lower-case hexadecimal digits: the start of its SHA-256 or, if secret is not empty,
// of its HMAC-SHA-256 under the secret. All replicas agree on it. Without a secret, a reader who guesses a key can confirm it.
func KeyHash(secret []byte, key string) string {
	if len(secret) == 0 {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:8])
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// ParseKey returns the domain and the entries of a [Key]. A text that the key contains as a hash stays one: "#" and the digits. If several
// values share a counter, the value is their name in the key: the wildcard, the smallest of the list, or the prefix. The
// value of a lease id is empty. ParseKey returns false for a text that is no key.
func ParseKey(key string) (domain string, entries []Entry, ok bool) {
	domain, rest, ok := cutText(key)
	if !ok {
		return "", nil, false
	}
	pieces, ok := cutPieces(rest)
	if !ok {
		return "", nil, false
	}
	for _, p := range pieces {
		e := Entry{}
		e.Key, _, _ = cutText(p.key)
		if p.how != leaseMark {
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

// cutWildcard cuts the rule's key, the rule's value and, unless the counter is shared, the value of the entry. It returns the last of
// them as the key has it.
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

// cutText cuts a text that appendText has written.
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
