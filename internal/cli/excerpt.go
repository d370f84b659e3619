package cli

import (
	"bytes"
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// A text finds lines of a file.
type text struct {
	data []byte
	line int // the number of lines before data, once at was called
}

// at returns a line without its line end. Lines must be requested in order; an earlier line gives "".
func (t *text) at(line int) string {
	for t.line+1 < line {
		end := bytes.IndexByte(t.data, '\n')
		if end < 0 {
			return ""
		}
		t.data, t.line = t.data[end+1:], t.line+1
	}
	if t.line+1 > line {
		return ""
	}
	found, _, _ := bytes.Cut(t.data, []byte("\n"))
	return strings.TrimSuffix(string(found[:min(len(found), maxLine)]), "\r")
}

const (
	maxLine      = 1 << 20 // of a line that is searched for a column, in bytes
	maxExcerpt   = 160     // characters of a line that are shown
	beforeColumn = 60      // of them before the column, if the line is longer
)

// excerpt returns a line for a terminal, and the indentation of a caret below column, which counts characters from 1. It shortens a
// long line, and replaces control and bidirectional characters, because the file may be untrusted.
func excerpt(line string, column int) (shown, indent string) {
	runes := []rune(line)
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
			spaces.WriteString(strings.Repeat(" ", columns(r)))
		}
	}
	return text.String(), spaces.String()
}

// columns returns the width of r on a terminal.
func columns(r rune) int {
	switch kind := width.LookupRune(r).Kind(); {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case kind == width.EastAsianWide || kind == width.EastAsianFullwidth:
		return 2
	}
	return 1
}
