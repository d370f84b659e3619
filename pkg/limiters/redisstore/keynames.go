package redisstore

import (
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// keyFormat is the version of keys and values. Counters do not survive a change of format.
const keyFormat = "w2"

// A keyNamer makes keys. In this package, a key is a key in Redis, and an opKey is the key of a
// [limiters.Op].
type keyNamer struct {
	keyPrefix string
	tag       func(opKey string) string
	hasher    *keyHasher // nil: keys are readable
}

// appendKey appends the key of an operation's state to text:
//
//	keyPrefix keyFormat {opKey} limit               the operation's key is the hash tag, so its limits are in one hash slot
//	keyPrefix keyFormat length {tag} opKey } limit  with a tag; its length keeps tag and opKey apart
//	keyPrefix keyFormat h{MAC of opKey} limit       hashed; with a tag, the MAC of the tag is the hash tag
//
// Braces in the operation's key are harmless: they change the hash tag of all its limits in the
// same way.
func (n keyNamer) appendKey(text []byte, opKey, stateID string) []byte {
	tag := ""
	if n.tag != nil {
		tag = n.tag(opKey)
	}
	text = append(text, n.keyPrefix...)
	text = append(text, keyFormat...)
	switch {
	case n.hasher != nil:
		text = n.hasher.append(text, tag, opKey)
	case tag != "":
		text = strconv.AppendInt(text, int64(len(tag)), 10)
		text = append(text, '{')
		text = append(text, tag...)
		text = append(text, '}')
		text = append(text, opKey...)
	default:
		text = append(text, '{')
		text = append(text, opKey...)
	}
	text = append(text, '}')
	return append(text, stateID...)
}

// parse returns the operation's key from the key of a state or from one of its extra keys. It
// returns false for other keys and for hashed keys.
func (n keyNamer) parse(key string) (opKey string, ok bool) {
	rest, ours := strings.CutPrefix(key, n.keyPrefix+keyFormat)
	end := strings.LastIndexByte(rest, '}') // the StateID that follows has no braces
	if !ours || end < 0 {
		return "", false
	}
	digits, rest, found := strings.Cut(rest[:end], "{")
	if !found {
		return "", false
	}
	if digits == "" {
		return rest, true
	}
	length, err := strconv.Atoi(digits)
	if err != nil || length < 0 || length >= len(rest) || rest[length] != '}' {
		return "", false
	}
	return rest[length+1:], true
}

// A keyKind is the content of a key of an operation.
type keyKind byte

const (
	usageKey        keyKind = iota // the state of the algorithm; every operation has this key
	reservationsKey                // the open reservations; only under a limit that reserves
	penaltyKey                     // the penalty; only under a limit with a penalty
)

// keySuffixes holds the suffix of the keys of each kind. No StateID ends with one.
var keySuffixes = [...]string{usageKey: "", reservationsKey: "h", penaltyKey: "p"}

// keys returns the keys of all operations.
func (n keyNamer) keys(groups []limiters.Group) []string {
	var keys []string
	var buffer [256]byte // a longer key allocates twice
	for _, g := range groups {
		for i := range g {
			keys = append(keys, string(n.appendKey(buffer[:0], g[i].Key, g[i].Limit.StateID())))
		}
	}
	return keys
}
