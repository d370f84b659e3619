package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxComponent is the longest text, in bytes, that a key contains unhashed.
const maxComponent = 128

// sharedMark is the matching of a wildcard with share_threshold in a key.
const sharedMark = '^'

// Key returns the name of the counter of entries under a rule, such as
//
//	3:ugc|7:user_id*5:alice|6:action=5:reply
//
// The rule is the result of [Rules.Match], or nil for an override that no rule matches. Every text follows its length in
// bytes. Between a key and its value is the way in which the rule matched:
//
//	=  the key and the value
//	*  the key, and any value
//	~  a wildcard; the rule's key and value follow, each with "=" behind it
//	^  a wildcard with share_threshold; the rule's key and value replace the value of the entry
//	?  no rule
//
// No two domains, rules or entries share a key, except by share_threshold. A key survives any change of the file elsewhere.
// A text longer than 128 bytes is "#" and its SHA-256, so the number of entries bounds a key. A key begins with a digit or
// "#".
func Key(domain string, rule *Rule, entries []Entry) string {
	var stack [256]byte
	return string(AppendKey(stack[:0], domain, rule, entries))
}

// DomainOf returns the part of a key that names its domain: 3:ugc in 3:ugc|6:action=5:reply. Keys of different domains have
// different results.
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

// AppendOverrideKey appends to dst the key of entries with a limit of their own, which ignore share_threshold.
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
		if i < len(plain) && plain[i] > 0 { // without a read of the path, which may be in no cache
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
