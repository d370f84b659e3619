package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/weir-rls/weir/internal/lines"
	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/recording"
)

// maxLineBytes bounds a line of a log.
const maxLineBytes = 256 << 10

// A parser reads the lines of one log.
type parser interface {
	// next reads the next record and returns its first line, from 1. If the record is unreadable,
	// reason says why; otherwise it is "". The error is io.EOF at the end.
	next() (line int64, reason Reason, err error)
	// field returns a field of the record.
	field(name string) (string, bool)
}

// Read reads a log, which may be compressed with gzip or zstd. It returns an error for options that
// do not fit the log, and for a full disk. A log that cannot be read to its end is listed in the
// report instead.
func (c *Converter) Read(name string, in io.Reader) error {
	plain, closer, err := decompress(in)
	if err == nil {
		defer closer()
		err = c.read(name, plain)
	}
	if fatal, ok := errors.AsType[*fatalError](err); ok {
		return fmt.Errorf("%s: %w", name, fatal.error)
	}
	if err != nil {
		c.report.Broken = append(c.report.Broken, fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// A fatalError ends the conversion, because further logs would fail in the same way.
type fatalError struct{ error }

func (c *Converter) read(name string, in *bufio.Reader) error {
	head := headOf(in)
	p, known, err := newParser(lines.NewReader(in, maxLineBytes), &c.o)
	if err == nil {
		c.setFields(known)
		err = c.checkFields(known)
	}
	if errors.Is(err, io.EOF) {
		return nil // an empty CSV
	}
	if err != nil {
		if hint := c.hint(head); hint != "" && errors.As(err, new(*fatalError)) {
			return &fatalError{errors.New(hint)}
		}
		return err
	}
	readBefore := c.report.Written + c.report.NoDescriptors // of other logs
	for {
		line, reason, err := p.next()
		if errors.Is(err, io.EOF) {
			if hint := c.hint(head); hint != "" && c.report.Written+c.report.NoDescriptors == readBefore {
				c.report.Hints = append(c.report.Hints, name+": "+hint)
			}
			return nil
		}
		if err != nil {
			return err
		}
		c.report.Lines++
		if reason == "" {
			reason, err = c.add(p)
			if err != nil {
				return &fatalError{err}
			}
		}
		if reason != "" {
			c.report.addUnreadable(name, line, reason)
		}
	}
}

// nextLine returns the next line of a log. It leaves out the last line of a log that is cut off,
// because a value in it may be cut off too.
func nextLine(in *lines.Reader) (line []byte, tooLong bool, err error) {
	line, tooLong, err = in.Next()
	if err != nil || tooLong || bytes.HasSuffix(line, []byte("\n")) {
		return line, tooLong, err
	}
	if _, _, end := in.Next(); !errors.Is(end, io.EOF) {
		return nil, false, end
	}
	return line, false, nil
}

// newParser returns a parser. It also returns the fields of the log, or nil if they may differ from
// line to line. The error is a [fatalError], or that of the log.
func newParser(in *lines.Reader, o *Options) (p parser, known []string, err error) {
	switch o.Format {
	case Envoy, Nginx:
		text, err := newTextLog(in, o.Format, o.Layout)
		if err != nil {
			return nil, nil, &fatalError{err}
		}
		return text, text.names(), nil
	case CSV:
		table, err := newCSVLog(in, o.Columns, o.Comma)
		if err != nil {
			return nil, nil, err
		}
		return table, table.columns, nil
	case JSON:
		return &jsonLog{in: in}, nil, nil
	}
	return nil, nil, &fatalError{fmt.Errorf("unknown format %q: the formats are envoy, nginx, json and csv", o.Format)}
}

// setFields sets the fields of the time and of the status for a log, with defaults for those that
// the options leave out. The log has the fields known, see newParser.
func (c *Converter) setFields(known []string) {
	has := func(name string) bool { return known == nil || slices.Contains(known, name) }
	start, status := "start_time", "response_code"
	switch c.o.Format {
	case Nginx:
		start, status = "", "status"
	case CSV:
		start, status = "time", "status"
	}
	c.times = timeFields{c.o.Time, c.o.EndTime, c.o.Duration, c.o.DurationUnit, c.o.Zone}
	if c.o.Time == "" && c.o.EndTime == "" {
		c.times.start = start
		if c.o.Format == Nginx {
			c.times.useNginx(has)
		}
	}
	c.status = c.o.Status
	if c.status == "" && has(status) {
		c.status = status
	}
}

// checkFields returns a [fatalError] if the mapping uses a field that is not in known.
func (c *Converter) checkFields(known []string) error {
	if known == nil {
		return nil
	}
	wanted := []string{c.times.start, c.times.end, c.times.duration, c.status}
	for name := range c.fields {
		wanted = append(wanted, name)
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		if name == "" || slices.Contains(known, name) {
			continue
		}
		hint := ": the"
		if nearest := spelling.Nearest(name, known); nearest != "" {
			hint = fmt.Sprintf(": did you mean %s? The", nearest)
		}
		return &fatalError{fmt.Errorf("the log has no field %q%s fields are %s", name, hint, joined(known))}
	}
	return nil
}

// decompress returns the plain text of a log, and a function that releases memory.
func decompress(in io.Reader) (*bufio.Reader, func(), error) {
	plain := bufio.NewReaderSize(in, 1<<16)
	magic, err := plain.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(plain)
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(r, 1<<16), func() { _ = r.Close() }, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const maxMemoryBytes = 128 << 20
		r, err := zstd.NewReader(plain, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxMemoryBytes),
			zstd.WithDecoderMaxWindow(maxMemoryBytes))
		if err != nil {
			return nil, nil, err
		}
		return bufio.NewReaderSize(r, 1<<16), r.Close, nil
	}
	return plain, func() {}, nil
}

// headBytes is how much of the start of a log [Converter.hint] reads, in bytes, and headLines the
// most lines.
const headBytes, headLines = 16 << 10, 20

// headOf returns the first whole lines of a log without consuming them.
func headOf(in *bufio.Reader) []byte {
	head, err := in.Peek(headBytes)
	if err == nil { // the log continues
		head = head[:bytes.LastIndexByte(head, '\n')+1]
	}
	all := bytes.SplitAfterN(head, []byte("\n"), headLines+1)
	return bytes.Clone(bytes.Join(all[:min(len(all), headLines)], nil))
}

// hint returns advice if the first lines of a log are a recording, or are readable in another
// format than that of the options. It returns "" if the format of the options reads at least one of
// the lines.
func (c *Converter) hint(head []byte) string {
	reads := func(format Format, layout string, columns []string) (n, all int) {
		p, _, err := newParser(lines.NewReader(bufio.NewReader(bytes.NewReader(head)), maxLineBytes),
			&Options{Format: format, Layout: layout, Columns: columns, Comma: c.o.Comma})
		if err != nil {
			return 0, 0
		}
		for {
			_, reason, err := p.next()
			if err != nil {
				return n, all
			}
			all++
			if reason == "" {
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
	r, err := recording.NewReader(bytes.NewReader(head), recording.ReaderOptions{})
	if err != nil {
		return false
	}
	defer r.Close()
	return r.Next(&recording.Line{}) == nil
}

// isTable reports whether each line of a text has several columns. Without this check, almost any
// text would pass as a table of one column.
func isTable(head []byte, comma rune) bool {
	for line := range bytes.Lines(bytes.TrimSpace(head)) {
		if !bytes.ContainsRune(line, comma) {
			return false
		}
	}
	return true
}
