package limiters

import (
	"crypto/hmac"
	"crypto/sha256"
)

// SecretSum returns the HMAC-SHA256 of text under secret or, if secret is empty, its SHA-256.
func SecretSum(secret []byte, text string) [sha256.Size]byte {
	if len(secret) == 0 {
		return sha256.Sum256([]byte(text))
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return [sha256.Size]byte(mac.Sum(nil))
}
