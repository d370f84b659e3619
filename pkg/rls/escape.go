package rls

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// escaped returns the value of an entry as valid UTF-8. Different values have different results, so no two of them share a
// counter. Envoy lets a request pass if Weir answers it with an error: a client must not get there by one invalid byte.
//
// An invalid byte becomes U+FFFD and its two hexadecimal digits. So do the bytes of a U+FFFD in the value itself if two such
// digits follow it. All other text stays, and patterns match it.
func escaped(value string) string {
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

// startsWithHex reports whether s starts with two digits as hex.AppendEncode writes them.
func startsWithHex(s string) bool { return len(s) >= 2 && isHex(s[0]) && isHex(s[1]) }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
