package rls

import "strconv"

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
	plain := func(c byte) bool { return c >= ' ' && c <= '~' }
	other := 0
	for i := range len(text) {
		if !plain(text[i]) {
			other++
		}
	}
	if other == 0 {
		return text
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(text)+2*other)
	for i := range len(text) {
		if c := text[i]; plain(c) && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}
