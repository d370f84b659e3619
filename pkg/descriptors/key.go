package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// maxComponent is the longest text, in bytes, that a key holds as it is.
const maxComponent = 128

// Key names the counter of entries under rule: nil, or what [Rules.Match] gave for them. A nil rule is for an override
// that no rule matches. It reads like
//
//	3:ugc|7:user_id*5:alice|6:action=5:reply
//
// Every text has its length before it, and between key and value stands how the rule matched: "=" exactly, "*" by the
// key alone, "~" by a pattern (which follows, as key=value=), "?" without a rule. So no two domains, rules or entries
// share a key, and a key stays the same over a reload whatever else has moved in the file. A text longer than 128 bytes
// is replaced by "#" and its SHA-256, which bounds a key by its number of entries. A key begins with a digit or "#".
func Key(domain string, rule *Rule, entries []Entry) string {
	var stack [256]byte
	b := appendText(stack[:0], domain)
	for i, e := range entries {
		s := step{how: unruled}
		if rule != nil && i < len(rule.path) {
			s = rule.path[i]
		}
		b = append(b, '|')
		b = appendText(b, e.Key)
		b = append(b, byte(s.how))
		if s.how == wildcard {
			b = append(appendText(b, s.key), '=')
			b = append(appendText(b, s.value), '=')
		}
		b = appendText(b, e.Value)
	}
	return string(b)
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxComponent {
		sum := sha256.Sum256([]byte(s))
		return hex.AppendEncode(append(b, '#'), sum[:])
	}
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}
