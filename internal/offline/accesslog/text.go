package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/internal/lines"
)

// A textLog reads lines of a layout: fields, and literal text between them.
type textLog struct {
	in       *lines.Reader
	literals []string // before each field, and after the last one
	fields   [][]string
	index    map[string]int
	nginx    bool
	values   []string
}

func newTextLog(in *lines.Reader, format Format, layout string) (*textLog, error) {
	t := &textLog{in: in, index: map[string]int{}, nginx: format == Nginx}
	var err error
	if t.nginx {
		err = t.parseNginx(strings.TrimSpace(cmp.Or(layout, nginxLayout)))
	} else {
		err = t.parseEnvoy(strings.TrimRight(cmp.Or(layout, envoyLayout), "\r\n"))
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
		return nil, fmt.Errorf("the format of the log has no fields: write Envoy operators such as %%START_TIME%%, or nginx " +
			"variables such as $time_local")
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
		line, tooLong, err := nextLine(t.in)
		text := strings.TrimRight(string(line), "\r\n")
		switch {
		case err != nil:
			return 0, "", err
		case tooLong:
			return t.in.Number, TooLong, nil
		case text == "":
			continue
		}
		return t.in.Number, t.split(text), nil
	}
}

// split cuts a line into its fields. A field ends at the first occurrence of the literal that
// follows it.
//
// A client can send such a literal within a field, because Envoy escapes no quotes, and neither
// proxy escapes spaces. The rest of that field would then move into the next one, and the literal
// that the proxy wrote would follow later, in this field or in another. Therefore split reports a
// line as ambiguous if a field contains the literal that precedes it.
func (t *textLog) split(line string) Reason {
	if !strings.HasPrefix(line, t.literals[0]) {
		return NotInFormat
	}
	before, from := 0, len(t.literals[0]) // where the literal before the field begins, and where the field begins
	for i := range t.fields {
		next, end := t.literals[i+1], len(line)
		if i < len(t.fields)-1 {
			length := strings.Index(line[from:], next)
			if length < 0 {
				return NotInFormat
			}
			end = from + length
		} else {
			end -= len(next)
			if end < from || line[end:] != next {
				return NotInFormat
			}
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

var byteEscape = regexp.MustCompile(`\\x[0-9A-Fa-f]{2}`)

// unescape decodes \xXX, the form in which nginx writes quotes, backslashes and bytes that are not
// printable ASCII. Few fields have any, so only those are searched by the expression, which would
// take a third of the time of convert.
func unescape(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	return byteEscape.ReplaceAllStringFunc(text, func(escape string) string {
		c, _ := strconv.ParseUint(escape[2:], 16, 8) // the expression matches only hexadecimal digits
		return string([]byte{byte(c)})
	})
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

// The default layouts.
const (
	envoyLayout = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	nginxLayout = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
)

// parseEnvoy parses a format string of Envoy: %NAME%, %NAME(ARGUMENT)%, %NAME(ARGUMENT):LENGTH%,
// and %% for a percent sign.
func (t *textLog) parseEnvoy(layout string) error {
	literal := ""
	for layout != "" {
		before, rest, found := strings.Cut(layout, "%")
		literal += before
		if !found {
			break
		}
		if strings.HasPrefix(rest, "%") {
			literal, layout = literal+"%", rest[1:]
			continue
		}
		end := strings.IndexByte(rest, '%')
		if open := strings.IndexByte(rest, '('); open >= 0 && open < end { // an argument may contain percent signs
			closed := strings.IndexByte(rest[open:], ')')
			if closed < 0 {
				return fmt.Errorf("%%%s has a '(' without a ')'", rest[:end])
			}
			end = strings.IndexByte(rest[open+closed:], '%')
			if end >= 0 {
				end += open + closed
			}
		}
		if end < 0 {
			return fmt.Errorf("%%%s has no second '%%': write %%%% for a percent sign", rest)
		}
		t.literals, literal = append(t.literals, literal), ""
		t.fields = append(t.fields, envoyNames(rest[:end]))
		layout = rest[end+1:]
	}
	t.literals = append(t.literals, literal)
	return nil
}

// envoyNames returns the names of an operator: those of the headers of REQ(X?Y), and the operator
// itself for others.
func envoyNames(operator string) []string {
	operator = strings.ToLower(operator)
	name, rest, hasArgument := strings.Cut(operator, "(")
	if !hasArgument || strings.HasPrefix(name, "start_time") {
		name, _, _ = strings.Cut(name, ":")
		return []string{name}
	}
	argument, _, _ := strings.Cut(rest, ")")
	if name != "req" {
		return []string{name + "(" + argument + ")"}
	}
	var names []string
	for _, header := range strings.Split(argument, "?") {
		names = append(names, header)
		if pseudo, ok := strings.CutPrefix(header, ":"); ok {
			names = append(names, pseudo)
		}
	}
	return names
}

// nginxVariable matches $name and ${name}. A '$' or '${' that it cannot complete is a match without
// a name.
var nginxVariable = regexp.MustCompile(`\$(\{[^}]+\}|[0-9A-Za-z_]*)`)

// parseNginx parses a log_format of nginx: $name and ${name}.
func (t *textLog) parseNginx(layout string) error {
	from := 0
	for _, m := range nginxVariable.FindAllStringIndex(layout, -1) {
		name := layout[m[0]+1 : m[1]]
		if strings.HasPrefix(name, "{") {
			name = name[1 : len(name)-1]
		}
		rest, unclosed := strings.CutPrefix(layout[m[1]:], "{")
		switch {
		case name == "" && unclosed && !strings.Contains(rest, "}"):
			return fmt.Errorf("${%s has no '}'", rest)
		case name == "":
			return errors.New("a '$' has no name behind it")
		}
		t.literals, t.fields = append(t.literals, layout[from:m[0]]), append(t.fields, []string{name})
		from = m[1]
	}
	t.literals = append(t.literals, layout[from:])
	return nil
}
