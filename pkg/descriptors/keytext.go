package descriptors

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// KeyHash returns an identifier of a [Key] that is safe to log: 16 lower-case hexadecimal digits of
// its SHA-256 or, if secret is not empty, of its HMAC-SHA-256. It is the same on all replicas.
// Without a secret, a reader can confirm a guessed key.
func KeyHash(secret []byte, key string) string {
	if len(secret) == 0 {
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:8])
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(key))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// KeyText returns the [EntriesText] of a [Key]. It returns any other text unchanged.
func KeyText(key string) string {
	_, entries, ok := ParseKey(key)
	if !ok {
		return key
	}
	return EntriesText(entries)
}
