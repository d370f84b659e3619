// Package terminal prepares text for a terminal.
package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable returns text with every control character as an escape, because clients choose the
// values of keys, and a terminal obeys some control characters.
func Printable(text string) string {
	for _, r := range text {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			quoted := strconv.Quote(text)
			return quoted[1 : len(quoted)-1]
		}
	}
	return text
}

// PrintableLines is [Printable] for several lines: it keeps their ends.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}

// JSON returns JSON with every character that is not printable as an escape. Encoding/json leaves
// those from U+007F on. A terminal may obey U+009B as it obeys ESC [.
func JSON(text []byte) []byte {
	escaped := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r < 0x7f || strconv.IsPrint(r):
			escaped = utf8.AppendRune(escaped, r)
		case r <= 0xffff:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		}
	}
	return escaped
}

// Grouped returns a number with a comma between groups of three digits.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Row returns a row of cells, each in the form of [fmt.Sprint], with control characters as escapes.
func Row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = Printable(fmt.Sprint(cell))
	}
	return strings.Join(texts, "\t")
}

// Table returns rows as [Columns] aligns them to the left, each with a line end.
func Table(rows ...string) string { return strings.Join(Columns(rows, 0), "\n") + "\n" }

// Columns aligns rows of cells that are separated by tabs. It returns a line for each row, without
// spaces at its end. The flags are those of [tabwriter.NewWriter].
func Columns(rows []string, flags uint) []string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 8, 2, ' ', flags)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, row) // a Builder has no error
	}
	_ = w.Flush()
	var lines []string
	for line := range strings.Lines(text.String()) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return lines
}
