package accesslog

import (
	"fmt"
	"strings"
)

// The default layouts.
const (
	envoyLayout = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% ` +
		`%BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
		`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	nginxLayout = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"`
)

// parseEnvoy parses a format string of Envoy: %NAME%, %NAME(ARGUMENT)%, %NAME(ARGUMENT):LENGTH%, and %% for a percent sign.
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
		if open := strings.IndexByte(rest, '('); open >= 0 && open < end { // an argument may have percent signs
			closed := strings.IndexByte(rest[open:], ')')
			if closed < 0 {
				return fmt.Errorf("%%%s has a '(' without a ')'", rest[:end])
			}
			if end = strings.IndexByte(rest[open+closed:], '%'); end >= 0 {
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

// envoyNames returns the names of an operator: those of the headers of REQ(X?Y), and the operator itself for others.
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

// parseNginx parses a log_format of nginx: $name and ${name}.
func (t *textLog) parseNginx(layout string) error {
	literal := ""
	for layout != "" {
		before, rest, found := strings.Cut(layout, "$")
		literal += before
		if !found {
			break
		}
		name, braced := "", strings.HasPrefix(rest, "{")
		if braced {
			var closed bool
			if name, layout, closed = strings.Cut(rest[1:], "}"); !closed {
				return fmt.Errorf("${%s has no '}'", rest[1:])
			}
		} else {
			end := strings.IndexFunc(rest, func(c rune) bool {
				return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
			})
			if end < 0 {
				end = len(rest)
			}
			name, layout = rest[:end], rest[end:]
		}
		if name == "" {
			return fmt.Errorf("a '$' has no name behind it")
		}
		t.literals, literal = append(t.literals, literal), ""
		t.fields = append(t.fields, []string{name})
	}
	t.literals = append(t.literals, literal)
	return nil
}
