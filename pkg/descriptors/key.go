package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// maxComponentBytes is the maximum length of a text in a key. A longer text is hashed.
const maxComponentBytes = 128

// These characters stand for nodes with share_threshold in a key.
const (
	sharedWildcard = '^'
	sharedValues   = ';'
	sharedPrefix   = '%'
)

// leaseMark ends a key whose last entry is a lease id.
const leaseMark = '!'

// Key returns the name of the counter of entries under a rule, such as
//
//	3:ugc|7:user_id*5:alice|6:action=5:reply
//
// The rule is the result of [Rules.Match], or nil for an override that no rule matches. Every text
// is preceded by its length in bytes. The character between a key and its value encodes how the
// rule matched:
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
// A canonical address has no zone, and is IPv4 if it is IPv4-mapped. Different domains, rules and
// entries have different keys, apart from share_threshold and two spellings of one address. Changes
// of other rules do not affect a key. A text longer than 128 bytes is encoded as "#" and its
// SHA-256, which bounds the length of a key. A key begins with a digit or "#".
func Key(domain string, rule *Rule, entries []Entry) string {
	var stack [256]byte
	return string(AppendKey(stack[:0], domain, rule, entries))
}

// DomainOf returns the part of a key that encodes its domain: 3:ugc of 3:ugc|6:action=5:reply. It
// differs between domains.
func DomainOf(key string) string {
	domain, _, _ := cutRaw(key)
	return domain
}

// AppendKey appends [Key] to dst.
func AppendKey(dst []byte, domain string, rule *Rule, entries []Entry) []byte {
	return appendKey(dst, domain, rule, entries, true)
}

// AppendOverrideKey appends to dst the key for a limit in the request, which ignores
// share_threshold.
func AppendOverrideKey(dst []byte, domain string, rule *Rule, entries []Entry) []byte {
	return appendKey(dst, domain, rule, entries, false)
}

func appendKey(b []byte, domain string, rule *Rule, entries []Entry, mayShare bool) []byte {
	b = appendText(b, domain)
	for i, e := range entries {
		b = appendText(append(b, '|'), e.Key)
		switch {
		case rule.isLeaseID(i, entries):
			b = append(b, leaseMark)
		case rule != nil && i < len(rule.keyKinds) && rule.keyKinds[i] > 0:
			b = appendText(append(b, byte(rule.keyKinds[i])), e.Value)
		case rule == nil || i >= len(rule.path):
			b = appendText(append(b, byte(unruled)), e.Value)
		default:
			b = rule.path[i].appendValue(b, e.Value, mayShare && rule.path[i].isShared)
		}
	}
	return b
}

// keyKind returns the kind of n if a key encodes a match of n as this kind and the value alone. For
// other nodes, which need appendValue, it returns 0.
func (n *pathNode) keyKind() MatchKind {
	if n.kind == Wildcard || n.kind == Prefixes || n.isShared {
		return 0
	}
	return n.kind
}

// appendValue appends the MatchKind of n, and the value or the shared name that identifies the
// counter.
func (n *pathNode) appendValue(b []byte, value string, shared bool) []byte {
	switch {
	case n.kind == Prefixes:
		return n.appendAddress(b, value, shared)
	case n.kind == Values && shared:
		return appendText(append(b, sharedValues), n.value)
	case shared:
		b = append(appendText(append(b, sharedWildcard), n.key), '=')
		return appendText(b, n.value)
	case n.kind == Wildcard:
		b = append(appendText(append(b, byte(Wildcard)), n.key), '=')
		b = append(appendText(b, n.value), '=')
		return appendText(b, value)
	}
	return appendText(append(b, byte(n.kind)), value)
}

func (n *pathNode) appendAddress(b []byte, value string, shared bool) []byte {
	address, ok := parseAddress(value)
	if !ok {
		return appendText(append(b, byte(Prefixes)), value) // n does not match it
	}
	var stack [64]byte // longer than any address or prefix
	if !shared {
		return appendShort(append(b, byte(Prefixes)), address.AppendTo(stack[:0]))
	}
	return appendShort(append(b, sharedPrefix), n.list.siblings.longest(address).AppendTo(stack[:0]))
}

// appendShort is appendText for at most maxComponentBytes.
func appendShort(b, text []byte) []byte {
	return append(appendLength(b, len(text)), text...)
}

func appendText(b []byte, s string) []byte {
	if len(s) > maxComponentBytes {
		sum := sha256.Sum256([]byte(s))
		return hex.AppendEncode(append(b, '#'), sum[:])
	}
	return append(appendLength(b, len(s)), s...)
}

// appendLength appends n and a colon. Most texts are short; BenchmarkKey shows the cost of strconv
// for them.
func appendLength(b []byte, n int) []byte {
	if n < 10 {
		return append(b, '0'+byte(n), ':')
	}
	return append(strconv.AppendInt(b, int64(n), 10), ':')
}
