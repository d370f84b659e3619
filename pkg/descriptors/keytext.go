package descriptors

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/weir-rls/weir/pkg/limiters"
)

// KeyHash returns an identifier of a [Key] that is safe to log: 16 lower-case hexadecimal digits of
// its SHA-256 or, if secret is not empty, of its HMAC-SHA-256. It is the same on all replicas.
// Without a secret, a reader can confirm a guessed key.
func KeyHash(secret []byte, key string) string {
	sum := limiters.SecretSum(secret, key)
	return hex.EncodeToString(sum[:8])
}

// KeyNumber returns the [KeyHash] as a number.
func KeyNumber(secret []byte, key string) uint64 {
	sum := limiters.SecretSum(secret, key)
	return binary.BigEndian.Uint64(sum[:])
}

// KeyText returns the [EntriesText] of a [Key]. It returns any other text unchanged.
func KeyText(key string) string {
	_, entries, ok := ParseKey(key)
	if !ok {
		return key
	}
	return EntriesText(entries)
}
