package accesslog

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Template makes a text from the fields of a line. It consists of literal text, and of %{field}
// for the value of a field. Filters after a field change its value:
//
//	%{path|segment 1}           the first part of a path: api for /api/v1?x=1
//	%{path|path}                the path without its query
//	%{path|query user}          a parameter of the query, decoded
//	%{x-forwarded-for|item -1}  an item of a list with commas; -1 is the last
//	%{address|host}             an address without its port, as netip.Addr writes it
//	%{method|lower}             in lower case
//	%{path|match ^/u/(\d+)}     the first group of a regular expression, or all that it matches
//
// A field is missing if the line does not have it, or if its value is empty or "-". If a field is
// missing, or a filter finds nothing, the whole text is missing. "%%{" is a literal "%{".
type Template struct{ parts []part }

// A part is literal text, which may be empty, or a field with its filters.
type part struct {
	literal, field string
	filters        []filter
}

// A filter changes the value of a field. It returns false if it finds nothing.
type filter func(value string) (string, bool)

// operator matches a command of Envoy's access log, such as %REQ(X-USER-ID)%.
var operator = regexp.MustCompile(`%[A-Z][A-Z0-9_]*(\([^)]*\))?(:[0-9]+)?%`)

// Constant reports whether the text is the same for every line.
func (t *Template) Constant() bool {
	return !slices.ContainsFunc(t.parts, func(p part) bool { return p.field != "" })
}

// ParseTemplate parses a template.
func ParseTemplate(text string) (*Template, error) {
	if o := operator.FindString(text); o != "" {
		return nil, fmt.Errorf("%q would be the text %s in every line: write %%{field} with a field of the log, such as %%{x-user-id} "+
			"for %%REQ(X-USER-ID)%%", text, o)
	}
	if text == "" {
		return nil, fmt.Errorf("the value is empty: write a text, or %%{field}")
	}
	t := &Template{}
	literal := ""
	for rest := text; ; {
		at := strings.Index(rest, "%{")
		if at < 0 {
			t.parts = append(t.parts, part{literal: literal + rest})
			return t, nil
		}
		if at > 0 && rest[at-1] == '%' {
			literal += rest[:at-1] + "%{"
			rest = rest[at+2:]
			continue
		}
		end := closing(rest[at:])
		if end < 0 {
			return nil, fmt.Errorf("%q: %%{ has no end: write %%{field}", text)
		}
		p, err := parseField(rest[at+2 : at+end])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		t.parts = append(t.parts, part{literal: literal + rest[:at]}, p)
		literal, rest = "", rest[at+end+1:]
	}
}

// closing returns the index of the brace that ends the field at the start of a text. Braces in a
// regular expression come in pairs.
func closing(text string) int {
	depth := 0
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

func parseField(text string) (part, error) {
	p := part{}
	name, rest, more := strings.Cut(text, "|")
	p.field = strings.TrimSpace(name)
	if p.field == "" {
		return p, fmt.Errorf("the name of a field is missing: write %%{field}")
	}
	for more {
		var one string
		if trimmed := strings.TrimSpace(rest); strings.HasPrefix(trimmed, "match ") {
			one, more = trimmed, false // a '|' belongs to the regular expression
		} else {
			one, rest, more = strings.Cut(rest, "|")
		}
		f, err := parseFilter(strings.TrimSpace(one))
		if err != nil {
			return p, err
		}
		p.filters = append(p.filters, f)
	}
	return p, nil
}

func parseFilter(text string) (filter, error) {
	name, argument, _ := strings.Cut(text, " ")
	argument = strings.TrimSpace(argument)
	n, err := strconv.Atoi(argument)
	isNumber := err == nil && n != 0
	switch {
	case name == "lower" && argument == "":
		return func(s string) (string, bool) { return strings.ToLower(s), true }, nil
	case name == "path" && argument == "":
		return func(s string) (string, bool) { return pathOf(s), true }, nil
	case name == "host" && argument == "":
		return hostOf, nil
	case name == "segment" && isNumber:
		return func(s string) (string, bool) {
			return item(strings.FieldsFunc(pathOf(s), func(c rune) bool { return c == '/' }), n)
		}, nil
	case name == "item" && isNumber:
		return func(s string) (string, bool) { return item(strings.Split(s, ","), n) }, nil
	case name == "query" && argument != "":
		return func(s string) (string, bool) { return queryOf(s, argument) }, nil
	case name == "match" && argument != "":
		expression, err := regexp.Compile(argument)
		if err != nil {
			return nil, fmt.Errorf("filter match: %w", err)
		}
		return func(s string) (string, bool) {
			found := expression.FindStringSubmatch(s)
			if found == nil {
				return "", false
			}
			return found[min(1, len(found)-1)], true
		}, nil
	}
	return nil, fmt.Errorf("unknown filter %q: the filters are segment N, path, query NAME, item N, host, lower and match REGEXP", text)
}

func item(all []string, n int) (string, bool) {
	if n < 0 {
		n += len(all) + 1
	}
	if n < 1 || n > len(all) {
		return "", false
	}
	return strings.TrimSpace(all[n-1]), true
}

func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

func queryOf(target, name string) (string, bool) {
	_, query, _ := strings.Cut(target, "?")
	values, _ := url.ParseQuery(query) // after an error, values has the parameters that could be read
	return values.Get(name), values.Has(name)
}

// hostOf returns an address without brackets and port. It reports false for a text that is not an
// address.
func hostOf(s string) (string, bool) {
	if full, err := netip.ParseAddrPort(s); err == nil {
		return full.Addr().Unmap().String(), true
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return address.Unmap().String(), err == nil
}

// value returns the text for a line. It reports false if the text is missing.
func (t *Template) value(field func(string) (string, bool)) (string, bool) {
	text := ""
	for _, p := range t.parts {
		if p.field == "" {
			text += p.literal
			continue
		}
		s, ok := fieldValue(field, p.field)
		for _, f := range p.filters {
			if ok {
				s, ok = f(s)
			}
		}
		if !ok || s == "" {
			return "", false
		}
		text += s
	}
	return text, true
}

// fieldValue returns the value of a field. It reports false if the field is missing.
func fieldValue(field func(string) (string, bool), name string) (string, bool) {
	s, ok := field(name)
	return s, ok && s != "" && s != "-"
}

// joined returns at most 40 names in one text.
func joined(names []string) string {
	const maximum = 40
	if len(names) > maximum {
		return strings.Join(names[:maximum], ", ") + fmt.Sprintf(" and %d more", len(names)-maximum)
	}
	return strings.Join(names, ", ")
}
