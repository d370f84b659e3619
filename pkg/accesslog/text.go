package accesslog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A textLog reads lines of a layout: fields, and literal text between them.
type textLog struct {
	in       *lines
	literals []string // before each field, and after the last one
	fields   [][]string
	index    map[string]int
	nginx    bool
	values   []string
}

func newTextLog(in *lines, format Format, layout string) (*textLog, error) {
	t := &textLog{in: in, index: map[string]int{}, nginx: format == Nginx}
	var err error
	switch {
	case format == Envoy && layout == "":
		err = t.parseEnvoy(envoyLayout)
	case format == Envoy:
		err = t.parseEnvoy(strings.TrimRight(layout, "\r\n"))
	case layout == "":
		err = t.parseNginx(nginxLayout)
	default:
		err = t.parseNginx(strings.TrimSpace(layout))
	}
	if err != nil {
		return nil, fmt.Errorf("the format of the log: %w", err)
	}
	for i := 1; i < len(t.fields); i++ {
		if t.literals[i] == "" {
			return nil, fmt.Errorf("the format of the log: no text separates %s and %s", t.fields[i-1][0], t.fields[i][0])
		}
	}
	if len(t.fields) == 0 {
		return nil, fmt.Errorf("the format of the log has no fields: write operators of Envoy such as %%START_TIME%%, or variables of nginx such as $time_local")
	}
	for i, names := range t.fields {
		for _, name := range names {
			if _, taken := t.index[name]; !taken {
				t.index[name] = i
			}
		}
	}
	t.values = make([]string, len(t.fields))
	return t, nil
}

// names returns the fields that a mapping may use.
func (t *textLog) names() []string {
	var all []string
	for _, names := range t.fields {
		all = append(all, names...)
	}
	if t.nginx && slices.Contains(all, "request") {
		for _, name := range requestParts {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// requestParts are fields made of $request.
var requestParts = []string{"method", "path", "protocol"}

func (t *textLog) next() (int64, Reason, error) {
	for {
		line, tooLong, err := t.in.next()
		switch {
		case err != nil:
			return 0, "", err
		case tooLong:
			return t.in.number, TooLong, nil
		case len(line) == 0:
			continue
		}
		return t.in.number, t.split(string(line)), nil
	}
}

// split cuts a line into its fields. A field ends at the first text that is the literal behind it.
//
// Envoy does not escape quotes, and neither proxy escapes spaces. A client can send what separates two fields in one of them, and the text
// behind it would move into the next field. The literal that Envoy has written then follows later: within the field that it begins, or,
// if the client has sent more literals, within a field behind. So a field that has the literal before it once more makes a line ambiguous.
func (t *textLog) split(line string) Reason {
	if !strings.HasPrefix(line, t.literals[0]) {
		return NotInFormat
	}
	before, from := 0, len(t.literals[0]) // of the literal before the field, and of the field
	for i := range t.fields {
		next, end := t.literals[i+1], len(line)
		if i < len(t.fields)-1 {
			if end = strings.Index(line[from:], next); end < 0 {
				return NotInFormat
			}
			end += from
		} else if end -= len(next); end < from || line[end:] != next {
			return NotInFormat
		}
		if i > 0 && strings.Contains(line[before+1:end], t.literals[i]) {
			return Ambiguous
		}
		t.values[i] = line[from:end]
		before, from = end, end+len(next)
	}
	if t.nginx {
		for i, v := range t.values {
			t.values[i] = unescape(v)
		}
	}
	return ""
}

// unescape decodes \xXX, as which nginx writes quotes, backslashes and other bytes.
func unescape(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], `\x`) && i+4 <= len(text) {
			if n, err := strconv.ParseUint(text[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

func (t *textLog) field(name string) (string, bool) {
	if i, ok := t.index[name]; ok {
		return t.values[i], true
	}
	part := slices.Index(requestParts, name)
	i, ok := t.index["request"]
	if part < 0 || !ok {
		return "", false
	}
	// A request that nginx could not read has other bytes there.
	parts := strings.Split(t.values[i], " ")
	if len(parts) != len(requestParts) {
		return "", false
	}
	return parts[part], true
}
