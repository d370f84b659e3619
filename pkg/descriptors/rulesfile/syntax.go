package rulesfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxSearchBytes bounds the text that is parsed again to locate a mistake.
const maxSearchBytes = 8 << 20

// syntaxMistake converts an error of the YAML library to a fault without a file. The library often
// reports the first line of a block instead of the faulty one, in the terms of its parser.
func syntaxMistake(data []byte, err error) Diagnostic {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	reported := 1
	if _, e := fmt.Sscanf(text, "line %d:", &reported); e == nil {
		_, text, _ = strings.Cut(text, ": ")
	}
	if byteOrder(data) != nil {
		return Diagnostic{Line: reported, Column: 1, ID: syntax, Message: "the file is UTF-16", Remedy: "save it as UTF-8"}
	}
	if line, column, bad := invalidUTF8(data); bad {
		return Diagnostic{Line: line, Column: column, ID: syntax, Message: "this is not UTF-8 text", Remedy: "save the file as UTF-8"}
	}
	if _, rest, found := strings.Cut(text, "unknown anchor '"); found {
		name, _, _ := strings.Cut(rest, "'")
		line, column := lineAndColumn(data, max(bytes.Index(data, []byte("*"+name)), 0))
		name = excerpt(name)
		return Diagnostic{Line: line, Column: column, ID: syntax, Message: "the alias '*" + name + "' has no anchor '&" + name + "'",
			Remedy: "quote it if it is text: '*" + name + "'"}
	}
	lines := bytes.Split(data, []byte("\n"))
	n := min(max(firstBadLine(data, reported), 1), len(lines))
	line := string(bytes.TrimRight(lines[n-1], "\r"))
	m := Diagnostic{Line: n, Column: 1 + len(line) - len(strings.TrimLeft(line, " \t")), ID: syntax}
	switch tab, quote, open := tabIn(line), unquoted(line), unclosed(line); {
	case tab > 0:
		m.Column, m.Message, m.Remedy = tab, "a tab indents this line", "use spaces"
	case strings.HasPrefix(line, "%"):
		m.Message, m.Remedy = "Weir does not know the directive '"+excerpt(line)+"'", "remove this line"
	case quote > 0:
		m.Column, m.Message = quote, fmt.Sprintf("a value cannot begin with '%c'", line[quote-1])
		value := strings.TrimSpace(line[quote-1:])
		if end := strings.IndexAny(value, " ,]"); value[0] == ':' && end > 0 {
			value = value[:end]
		}
		m.Remedy = "quote it: '" + excerpt(value) + "'"
	case open > 0:
		m.Column, m.Message = open, fmt.Sprintf("'%c' is not closed", line[open-1])
		m.Remedy = fmt.Sprintf("add '%c'", closing[line[open-1]])
	case strings.Contains(text, "mapping values are not allowed") && strings.Count(line, ": ") > 1:
		m.Message, m.Remedy = "a value contains ': '", "quote the value, or begin a new line"
	case strings.Contains(text, "could not find expected ':'"):
		m.Message, m.Remedy = "this line has no ': '", "write 'key: value'"
	case strings.Contains(text, "did not find expected") || strings.Contains(text, "mapping values are not allowed"):
		m.Message, m.Remedy = "the indentation does not fit the lines above", "align the line with the keys or the '-' of its level"
	default:
		m.Message, m.Remedy = "this is not valid YAML ("+excerpt(text)+")", "see the examples in docs/rules.md"
	}
	m.Column = 1 + utf8.RuneCountInString(line[:m.Column-1])
	return m
}

// firstBadLine returns the line after the longest valid prefix of data. In a large file the result
// is approximate.
func firstBadLine(data []byte, reported int) int {
	ends := []int{0} // ends[i] is the end of line i
	for i, c := range data {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	if ends[len(ends)-1] < len(data) {
		ends = append(ends, len(data))
	}
	valid := func(lines int) bool {
		_, _, err := decode(data[:ends[lines]])
		return err == nil
	}
	last := len(ends) - 1
	switch {
	case len(data) > maxSearchBytes/16:
		return reported
	case len(data)*last/2 <= maxSearchBytes:
		for last > 1 && !valid(last-1) {
			last--
		}
		return last
	}
	low := 0 // valid; last is not
	for low+1 < last {
		if middle := (low + last) / 2; valid(middle) {
			low = middle
		} else {
			last = middle
		}
	}
	return last
}

var closing = map[byte]byte{'{': '}', '[': ']', '"': '"', '\'': '\''}

// unclosed returns the column of the last bracket or quote that line opens and does not close; 0 if
// there is none.
func unclosed(line string) int {
	open := []int{-1} // the open brackets
	quote, escaped := -1, -1
	for i := range len(line) {
		c := line[i]
		begins := i == 0 || strings.IndexByte(" [{,:-", line[i-1]) >= 0
		switch {
		case quote >= 0:
			switch {
			case c != line[quote] || c == '"' && line[i-1] == '\\' || i == escaped:
			case c == '\'' && i+1 < len(line) && line[i+1] == '\'':
				escaped = i + 1 // '' is an escaped quote
			default:
				quote = -1
			}
		case c == '#' && (i == 0 || line[i-1] == ' '):
			return open[len(open)-1] + 1
		case (c == '"' || c == '\'') && begins:
			quote = i
		case (c == '{' || c == '[') && (begins || len(open) > 1):
			open = append(open, i)
		case (c == '}' || c == ']') && len(open) > 1:
			open = open[:len(open)-1]
		}
	}
	if quote >= 0 {
		return quote + 1
	}
	return open[len(open)-1] + 1
}

// special matches an unquoted value whose first character is special in YAML and does not begin an
// anchor or alias. In a flow list, this includes the "::" of an IPv6 prefix.
var special = regexp.MustCompile("(?:^|[:,\\[{-]) *(?:- *)*([@`%]|[*&](?:[^\\w]|$))|[,\\[] *()::")

// unquoted returns the column of a value that needs quotes; 0 if there is none.
func unquoted(line string) int {
	if m := special.FindStringSubmatchIndex(line); m != nil {
		return max(m[2], m[4]) + 1
	}
	return 0
}

// tabIn returns the column of a tab in the indentation; 0 if there is none.
func tabIn(line string) int {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t-"))]
	return strings.IndexByte(indent, '\t') + 1
}

// byteOrder returns the byte order of data if it is UTF-16, or nil. Without a byte order mark, a
// text in ASCII has a zero byte in its first character.
func byteOrder(data []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}), len(data) > 1 && data[1] == 0:
		return binary.LittleEndian
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}), len(data) > 1 && data[0] == 0:
		return binary.BigEndian
	default:
		return nil
	}
}

// UTF8 returns data, converted to UTF-8 if it is UTF-16.
func UTF8(data []byte) []byte {
	order := byteOrder(data)
	if order == nil {
		return data
	}
	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = order.Uint16(data[2*i:])
	}
	return []byte(strings.TrimPrefix(string(utf16.Decode(units)), "\ufeff"))
}

func invalidUTF8(data []byte) (line, column int, bad bool) {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			line, column = lineAndColumn(data, at)
			return line, column, true
		}
		at += size
	}
	return 0, 0, false
}

// lineAndColumn converts an offset to a line and a column.
func lineAndColumn(data []byte, offset int) (line, column int) {
	before := data[:offset]
	return 1 + bytes.Count(before, []byte("\n")), 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}
