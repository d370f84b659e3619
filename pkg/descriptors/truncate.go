package descriptors

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// TruncateWithHash returns text as valid UTF-8 of at most n bytes, for metric labels and logs. A
// text that is longer or invalid is changed and ends with "~" and 8 bytes of its SHA-256, so that
// different texts stay different. n must be at least 17.
func TruncateWithHash(text string, n int) string {
	if len(text) <= n && utf8.ValidString(text) {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	tail := "~" + hex.EncodeToString(sum[:8])
	valid := strings.ToValidUTF8(text, "\uFFFD")
	return strings.ToValidUTF8(valid[:min(len(valid), n-len(tail))], "") + tail
}

// Truncate returns the first n bytes of text, without a partial character, and "...", for error
// messages. It returns a text of at most n bytes unchanged.
func Truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "..."
}
