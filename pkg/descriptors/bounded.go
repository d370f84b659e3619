package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Bounded returns text as valid UTF-8 of at most n bytes, for metric labels and logs. A longer text is truncated and ends with "~"
// and 8 bytes of its SHA-256, so that different texts stay different. n must be at least 17.
func Bounded(text string, n int) string {
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "\uFFFD")
	}
	if len(text) <= n {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	tail := "~" + hex.EncodeToString(sum[:8])
	return strings.ToValidUTF8(text[:n-len(tail)], "") + tail
}
