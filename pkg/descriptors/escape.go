package descriptors

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// EscapeInvalidUTF8 returns value as valid UTF-8, injectively, so that two values never share a
// counter. Rejecting invalid UTF-8 instead would let a client bypass its limits, because Envoy may
// let a request pass after an error.
//
// An invalid byte becomes U+FFFD and its two hexadecimal digits. A U+FFFD that two such digits
// follow is escaped in the same way. Other text is unchanged, so that patterns still match it.
func EscapeInvalidUTF8(value string) string {
	if utf8.ValidString(value) && !strings.Contains(value, "\uFFFD") {
		return value
	}
	b := make([]byte, 0, len(value)+4)
	for i := 0; i < len(value); {
		r, n := utf8.DecodeRuneInString(value[i:])
		if r == utf8.RuneError && (n == 1 || startsWithHex(value[i+n:])) {
			for _, c := range []byte(value[i : i+n]) {
				b = utf8.AppendRune(b, utf8.RuneError)
				b = hex.AppendEncode(b, []byte{c})
			}
		} else {
			b = append(b, value[i:i+n]...)
		}
		i += n
	}
	return string(b)
}

// startsWithHex reports whether s starts with two lower-case hexadecimal digits.
func startsWithHex(s string) bool { return len(s) >= 2 && isHex(s[0]) && isHex(s[1]) }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
