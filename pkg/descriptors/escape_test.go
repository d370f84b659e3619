package descriptors_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// unescaped is the inverse of EscapeInvalidUTF8.
func unescaped(text string) string {
	var b strings.Builder
	for text != "" {
		rest, marked := strings.CutPrefix(text, "\uFFFD")
		if marked && len(rest) > 1 && hexDigit(rest[0]) < 16 && hexDigit(rest[1]) < 16 {
			b.WriteByte(16*hexDigit(rest[0]) + hexDigit(rest[1]))
			text = rest[2:]
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return b.String()
}

// hexDigit returns the value of a lower-case hexadecimal digit, or 255.
func hexDigit(c byte) byte { return byte(strings.IndexByte("0123456789abcdef", c)) }

func TestInvalidUTF8SharesNoCounterWithItsEscape(t *testing.T) {
	values := []string{
		"\xe9", "\uFFFDe9", "\uFFFDe\xe9", "\uFFFD\xe9", "\uFFFD", "\xef\xbf\xbd\x65\x39", "\xef\xbf", "\uFFFDef\uFFFDbf",
		"\uFFFDef\uFFFDbf\uFFFDbde9", "\uFFFDE9", "é\xff", "\uFFFDff", "plain", "\uFFFDef",
	}
	seen := map[string]string{}
	for _, v := range values {
		got := descriptors.EscapeInvalidUTF8(v)
		if other, taken := seen[got]; taken && other != v {
			t.Errorf("%q and %q both become %q", v, other, got)
		}
		seen[got] = v
		if !utf8.ValidString(got) || unescaped(got) != v {
			t.Errorf("%q became %q, which is %q", v, got, unescaped(got))
		}
	}
}

func FuzzEscapeInvalidUTF8(f *testing.F) {
	f.Add("\xe9")
	f.Add("\uFFFDe9")
	f.Add("a\uFFFDb\xff\uFFFDc3")
	f.Fuzz(func(t *testing.T, value string) {
		got := descriptors.EscapeInvalidUTF8(value)
		if !utf8.ValidString(got) || unescaped(got) != value {
			t.Errorf("%q became %q, which is %q", value, got, unescaped(got))
		}
	})
}
