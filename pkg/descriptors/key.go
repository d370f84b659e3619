package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxComponent is the longest text, in bytes, that a key contains unhashed.
const maxComponent = 128

// These are the matchings of levels with share_threshold in a key.
const (
	sharedWildcard = '^'
	sharedValues   = ';'
	sharedPrefix   = '%'
)

// leaseMark ends a key whose last entry is the id of a request.
const leaseMark = '!'

// Key returns the name of the counter of entries under a rule, such as
//
//	3:ugc|7:user_id*5:alice|6:action=5:reply
//
// The rule is the result of [Rules.Match], or nil for an override that no rule matches. Every text follows its length in
// bytes. Between a key and its value is the way in which the rule matched:
//
//	=  the key and the value
//	,  the key and one of a list of values
//	;  a list of values with share_threshold; the smallest of the list replaces the value of the entry
//	/  the key and an address in a prefix; the canonical address replaces the value of the entry
//	%  a prefix with share_threshold; the prefix replaces the value of the entry
//	*  the key, and any value
//	~  a wildcard; the rule's key and value follow, each with "=" behind it
//	^  a wildcard with share_threshold; the rule's key and value replace the value of the entry
//	!  a rule with leases; nothing follows, because the value is the id of a request
//	?  no rule
//
// The canonical address is the IPv4 address of an IPv4-mapped IPv6 address, without a zone, as [netip.Addr] writes it.
// No two domains, rules or entries share a key, except by share_threshold and if two values are the same address. A key survives any change of the file elsewhere.
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
	counted := entries
	if rule != nil && rule.hasLeases && len(entries) > 0 {
		counted = entries[:len(entries)-1]
	}
	var plain [len(rule.plain)]byte
	if rule != nil {
		plain = rule.plain
	}
	for i, e := range counted {
		if i < len(plain) && plain[i] > 0 { // without a read of the path, which may be in no cache
			b = append(appendText(append(b, '|'), e.Key), plain[i])
			b = appendText(b, e.Value)
			continue
		}
		b = appendText(append(b, '|'), e.Key)
		if rule == nil || i >= len(rule.path) {
			b = appendText(append(b, byte(unruled)), e.Value)
			continue
		}
		b = rule.path[i].appendValue(b, e.Value, share && rule.path[i].share)
	}
	if len(counted) < len(entries) {
		b = append(appendText(append(b, '|'), entries[len(counted)].Key), leaseMark)
	}
	return b
}

// appendValue appends the matching of l and the value that identifies the counter of a request's value.
func (l *level) appendValue(b []byte, value string, shared bool) []byte {
	switch {
	case l.how == addresses:
		return l.appendAddress(b, value, shared)
	case l.how == oneOf && shared:
		return appendText(append(b, sharedValues), l.value)
	case shared:
		b = append(appendText(append(b, sharedWildcard), l.key), '=')
		return appendText(b, l.value)
	case l.how == wildcard:
		b = append(appendText(append(b, byte(wildcard)), l.key), '=')
		b = append(appendText(b, l.value), '=')
		return appendText(b, value)
	}
	return appendText(append(b, byte(l.how)), value)
}

func (l *level) appendAddress(b []byte, value string, shared bool) []byte {
	address, ok := parseAddress(value)
	if !ok {
		return appendText(append(b, byte(addresses)), value) // l does not match it
	}
	var stack [64]byte // longer than any address or prefix
	if !shared {
		return appendShort(append(b, byte(addresses)), address.AppendTo(stack[:0]))
	}
	return appendShort(append(b, sharedPrefix), l.list.siblings.longest(address).AppendTo(stack[:0]))
}

// appendShort is appendText of at most maxComponent bytes.
func appendShort(b, text []byte) []byte {
	return append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...)
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxComponent {
		sum := sha256.Sum256([]byte(s))
		return hex.AppendEncode(append(b, '#'), sum[:])
	}
	b = append(strconv.AppendInt(b, int64(len(s)), 10), ':')
	return append(b, s...)
}
