package cli

import (
	"bytes"
	"strings"
	"unicode"

	"charm.land/lipgloss/v2"
)

const (
	maxLineBytes = 1 << 20 // a longer line is not searched for a column
	maxExcerpt   = 160     // characters of a line that are shown
	beforeColumn = 60      // characters shown before the column, if the line is longer
)

// excerpt returns a line for a terminal, and the indentation of a caret below column, which counts
// characters from 1. It shortens a long line, and replaces control and bidirectional characters,
// because the file may be untrusted.
func excerpt(line []byte, column int) (shown, indent string) {
	runes := []rune(string(bytes.TrimSuffix(line[:min(len(line), maxLineBytes)], []byte("\r"))))
	at := min(max(column-1, 0), len(runes))
	before := ""
	if len(runes) > maxExcerpt {
		from := max(0, min(at-beforeColumn, len(runes)-maxExcerpt))
		to := min(from+maxExcerpt, len(runes))
		if from > 0 {
			before = "..."
		}
		cut := to < len(runes)
		runes, at = runes[from:to], at-from
		if cut {
			runes = append(runes[:len(runes):len(runes)], '.', '.', '.')
		}
	}
	var text, spaces strings.Builder
	text.WriteString(before)
	spaces.WriteString(strings.Repeat(" ", len(before)))
	for i, r := range runes {
		if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			r = unicode.ReplacementChar
		}
		text.WriteRune(r)
		switch {
		case i >= at:
		case r == '\t':
			spaces.WriteByte('\t')
		default:
			spaces.WriteString(strings.Repeat(" ", lipgloss.Width(string(r))))
		}
	}
	return text.String(), spaces.String()
}
