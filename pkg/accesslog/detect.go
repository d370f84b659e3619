package accesslog

import (
	"bufio"
	"bytes"
	"fmt"

	"github.com/weir-rls/weir/pkg/replay"
)

// headBytes is the length of the text at the start of a log that [Converter.hint] reads, and headLines the most lines of it.
const headBytes, headLines = 16 << 10, 20

// headOf returns the first whole lines of a log, without reading them.
func headOf(in *bufio.Reader) []byte {
	head, err := in.Peek(headBytes)
	if err == nil { // the log goes on
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	all := bytes.SplitAfterN(head, []byte("\n"), headLines+1)
	return bytes.Clone(bytes.Join(all[:min(len(all), headLines)], nil))
}

// hint names the format in which the first lines of a log can be read, if it is not that of the options. It returns "" if there is none,
// or if the format of the options reads one of the lines.
func (c *Converter) hint(head []byte) string {
	reads := func(format Format, layout string, columns []string) (n, all int) {
		p, _, err := newParser(&lines{in: bufio.NewReader(bytes.NewReader(head))}, &Options{Format: format, Layout: layout, Columns: columns, Comma: c.o.Comma})
		if err != nil {
			return 0, 0
		}
		for {
			_, reason, err := p.next()
			if err != nil {
				return n, all
			}
			if all++; reason == "" {
				n++
			}
		}
	}
	if isRecording(head) {
		return "it is a recording already"
	}
	if n, _ := reads(c.o.Format, c.o.Layout, c.o.Columns); n > 0 {
		return ""
	}
	for _, format := range []Format{JSON, Envoy, Nginx, CSV} {
		if n, all := reads(format, "", nil); n == 0 || n < all || format == CSV && !isTable(head, c.o.Comma) {
			continue
		}
		switch {
		case format != c.o.Format:
			return fmt.Sprintf("its first lines are in the format %s, not %s", format, c.o.Format)
		case c.o.Layout != "":
			return fmt.Sprintf("its first lines are in the default format of %s: leave the format string out", format)
		}
	}
	return ""
}

// isRecording reports whether a text begins with a line of a recording.
func isRecording(head []byte) bool {
	r, err := replay.NewReader(bytes.NewReader(head), replay.ReaderOptions{})
	if err != nil {
		return false
	}
	defer r.Close()
	return r.Next(&replay.Line{}) == nil
}

// isTable reports whether each line of a text has several columns. Without this check, almost any text is a table of one column.
func isTable(head []byte, comma rune) bool {
	for line := range bytes.Lines(bytes.TrimSpace(head)) {
		if !bytes.ContainsRune(line, comma) {
			return false
		}
	}
	return true
}
