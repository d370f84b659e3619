package admin

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// keyHash returns the hash that names a key in logs and responses: 16 hexadecimal digits of its HMAC-SHA256 under the secret, or of
// its SHA-256 without one.
func keyHash(secret []byte, key string) string {
	sum := sha256.Sum256([]byte(key))
	if len(secret) > 0 {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		mac.Sum(sum[:0])
	}
	return hex.EncodeToString(sum[:8])
}

func sourceOf(rule *descriptors.Rule) string {
	if s, ok := any(rule).(interface{ Source() string }); ok {
		return s.Source()
	}
	return ""
}

func versionOf(rules *descriptors.Rules) string {
	if s, ok := any(rules).(interface{ Version() string }); ok && rules != nil {
		return s.Version()
	}
	return ""
}
