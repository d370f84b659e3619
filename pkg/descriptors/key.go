package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxComponent is the longest text, in bytes, that a key holds as it is.
const maxComponent = 128

// sharedMark stands in a key where a wildcard with share_threshold matched.
const sharedMark = '^'

// Key names the counter of entries under rule: nil, or what [Rules.Match] gave for them. A nil rule is for an override
// that no rule matches. It reads like
//
//	3:ugc|7:user_id*5:alice|6:action=5:reply
//
// Every text has its length before it, and between key and value stands how the rule matched: "=" exactly, "*" by the
// key alone, "~" by a pattern (which follows, as key=value=), "^" by one with share_threshold (which follows in place
// of the value), "?" without a rule. So no two domains, rules or entries share a key but by share_threshold, and a key
// stays the same over a reload whatever else has moved in the file. A text longer than 128 bytes
// is replaced by "#" and its SHA-256, which bounds a key by its number of entries. A key begins with a digit or "#".
func Key(domain string, rule *Rule, entries []Entry) string {
	var stack [256]byte
	return string(AppendKey(stack[:0], domain, rule, entries))
}

// OverrideKey is the Key of entries that bring a limit of their own: share_threshold is not for them.
func OverrideKey(domain string, rule *Rule, entries []Entry) string {
	var stack [256]byte
	return string(AppendOverrideKey(stack[:0], domain, rule, entries))
}

// DomainOf is how a Key begins, in 3:ugc|6:action=5:reply the 3:ugc: the same for all keys of a domain, and for those of
// no other.
func DomainOf(key string) string {
	length, _, _ := strings.Cut(key, ":")
	if n, err := strconv.ParseUint(length, 10, 8); err == nil && len(length)+1+int(n) <= len(key) {
		return key[:len(length)+1+int(n)]
	}
	hash, _, _ := strings.Cut(key, "|")
	return hash
}

// AppendKey appends the [Key] to dst.
func AppendKey(dst []byte, domain string, rule *Rule, entries []Entry) []byte {
	return appendKey(dst, domain, rule, entries, true)
}

// AppendOverrideKey appends the [OverrideKey] to dst.
func AppendOverrideKey(dst []byte, domain string, rule *Rule, entries []Entry) []byte {
	return appendKey(dst, domain, rule, entries, false)
}

func appendKey(b []byte, domain string, rule *Rule, entries []Entry, share bool) []byte {
	b = appendText(b, domain)
	var plain [len(rule.plain)]byte
	if rule != nil {
		plain = rule.plain
	}
	for i, e := range entries {
		if i < len(plain) && plain[i] > 0 { // the path is memory that no cache may hold
			b = append(appendText(append(b, '|'), e.Key), plain[i])
			b = appendText(b, e.Value)
			continue
		}
		s := step{how: unruled}
		shared := false
		if rule != nil && i < len(rule.path) {
			s, shared = rule.path[i].step, share && rule.path[i].share
		}
		b = append(b, '|')
		b = appendText(b, e.Key)
		if shared {
			b = append(appendText(append(b, sharedMark), s.key), '=')
			b = appendText(b, s.value)
			continue
		}
		b = append(b, byte(s.how))
		if s.how == wildcard {
			b = append(appendText(b, s.key), '=')
			b = append(appendText(b, s.value), '=')
		}
		b = appendText(b, e.Value)
	}
	return b
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxComponent {
		sum := sha256.Sum256([]byte(s))
		return hex.AppendEncode(append(b, '#'), sum[:])
	}
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}
