package accesslog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/lines"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A csvLog reads a table. A record with quotes may have several lines.
type csvLog struct {
	in      *lines.Reader
	comma   rune
	columns []string
	record  []string
	again   []csvLine // to read again
}

type csvLine struct {
	number  int64
	text    string
	tooLong bool
}

// maxRecordLines bounds the lines of a record, so that a quote without an end does not hide the
// lines after it.
const maxRecordLines = 100

func newCSVLog(in *lines.Reader, columns []string, comma rune) (*csvLog, error) {
	c := &csvLog{in: in, comma: comma, columns: columns}
	if len(columns) > 0 {
		return c, nil
	}
	_, reason, err := c.read()
	if err != nil {
		return nil, err
	}
	if reason != "" {
		return nil, &fatalError{fmt.Errorf("line %d: the header cannot be read (%s)", in.Number, reason)}
	}
	for i, name := range c.record {
		c.columns = append(c.columns, strings.TrimSpace(name))
		if slices.Contains(c.columns[:i], c.columns[i]) {
			return nil, &fatalError{fmt.Errorf("line %d: the header has the column %q twice: rename one of them", in.Number, c.columns[i])}
		}
	}
	return c, nil
}

func (c *csvLog) next() (int64, Reason, error) {
	line, reason, err := c.read()
	if err == nil && reason == "" && len(c.record) != len(c.columns) {
		reason = BadCSV
	}
	return line, reason, err
}

// read reads a record. If a quote has no end, only the first line is unreadable, and the next
// record begins with the line after it.
func (c *csvLog) read() (int64, Reason, error) {
	var taken []csvLine
	size, quotes := 0, 0
	reason := Reason("")
	for reason == "" && (len(taken) == 0 || quotes%2 > 0) {
		line, err := c.line()
		if err != nil && len(taken) == 0 {
			return 0, "", err
		}
		if err == nil && len(taken) == 0 && line.text == "" && !line.tooLong {
			continue
		}
		if err != nil || len(taken) == maxRecordLines || len(taken) > 0 && (line.tooLong || size+len(line.text) > maxLineBytes) {
			reason = BadCSV
		} else if line.tooLong {
			reason = TooLong
		}
		if err == nil {
			taken = append(taken, line)
			size += len(line.text)
			quotes += strings.Count(line.text, `"`)
		}
	}
	first := taken[0].number
	if reason == "" {
		var text strings.Builder
		for _, line := range taken {
			text.WriteString(line.text + "\n")
		}
		r := csv.NewReader(strings.NewReader(text.String()))
		r.Comma, r.FieldsPerRecord = c.comma, -1
		record, err := r.Read()
		c.record = record
		if err == nil {
			return first, "", nil
		}
		reason = BadCSV
	}
	c.again = append(slices.Clone(taken[1:]), c.again...)
	return first, reason, nil
}

// line returns the next line: first the lines that read has put back, then those of the log.
func (c *csvLog) line() (csvLine, error) {
	if len(c.again) > 0 {
		line := c.again[0]
		c.again = c.again[1:]
		return line, nil
	}
	text, tooLong, err := nextLine(c.in)
	return csvLine{c.in.Number, strings.TrimRight(string(text), "\r\n"), tooLong}, err
}

func (c *csvLog) field(name string) (string, bool) {
	i := slices.Index(c.columns, name)
	if i < 0 {
		return "", false
	}
	return c.record[i], true
}

// A jsonLog reads one JSON object a line.
type jsonLog struct {
	in     *lines.Reader
	object map[string]any
}

func (j *jsonLog) next() (int64, Reason, error) {
	for {
		line, tooLong, err := nextLine(j.in)
		switch {
		case err != nil:
			return 0, "", err
		case tooLong:
			return j.in.Number, TooLong, nil
		case len(bytes.TrimSpace(line)) == 0:
			continue
		}
		// The decoder would replace all invalid bytes alike.
		text := descriptors.EscapeInvalidUTF8(string(line))
		j.object = nil
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if decoder.Decode(&j.object) != nil || j.object == nil || strings.TrimSpace(text[decoder.InputOffset():]) != "" {
			return j.in.Number, NotJSON, nil
		}
		return j.in.Number, "", nil
	}
}

// field returns a member of the object. A dot leads into an object, unless a member has the whole
// name.
func (j *jsonLog) field(name string) (string, bool) { return member(j.object, name) }

func member(object map[string]any, name string) (string, bool) {
	if found, ok := object[name]; ok {
		switch v := found.(type) {
		case string:
			return v, true
		case json.Number:
			return v.String(), true
		case bool:
			return strconv.FormatBool(v), true
		}
		return "", false // null, a list or an object
	}
	for at := 0; ; {
		dot := strings.IndexByte(name[at:], '.')
		if dot < 0 {
			return "", false
		}
		at += dot
		if inner, ok := object[name[:at]].(map[string]any); ok {
			return member(inner, name[at+1:])
		}
		at++
	}
}
