package rls

import (
	"strconv"
	"strings"
)

// maxInteger is the largest integer of a structured field.
const maxInteger = 1e15 - 1

func appendParameter(b []byte, name string, n int64) []byte {
	b = append(append(append(b, ';'), name...), '=')
	return strconv.AppendInt(b, min(n, maxInteger), 10)
}

// appendQuoted appends printable ASCII as a structured-field string.
func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, text[i])
	}
	return append(b, '"')
}

// percentEncoded returns text as printable ASCII. Text with other characters is percent-encoded,
// including its '%'.
func percentEncoded(text string) string {
	plain := func(r rune) bool { return r >= ' ' && r <= '~' }
	if !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	const digits = "0123456789ABCDEF"
	var b []byte
	for _, c := range []byte(text) {
		if plain(rune(c)) && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
