package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Bounded returns text as valid UTF-8 of at most n bytes, for metric labels and logs. A text that is longer or invalid is changed
// and ends with "~" and 8 bytes of its SHA-256, so that different texts stay different. n must be at least 17.
func Bounded(text string, n int) string {
	if len(text) <= n && utf8.ValidString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	tail := "~" + hex.EncodeToString(sum[:8])
	valid := strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(valid[:min(len(valid), n-len(tail))], "") + tail
}
