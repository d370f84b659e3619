package descriptors

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseEntries parses a descriptor such as user_id=42,action=login. '\' escapes ',', '=' and '\'.
// The first unescaped '=' of an entry ends its key. An empty text has no entries. Invalid UTF-8 is
// an error, because JSON would replace each invalid byte with U+FFFD and so name another client.
func ParseEntries(text string) ([]Entry, error) {
	if text == "" {
		return nil, nil
	}
	var entries []Entry
	for i, part := range splitUnescaped(text, ',', -1) {
		pair := splitUnescaped(part, '=', 2)
		pair[0] = strings.TrimSpace(pair[0]) // people write a space after a comma
		switch {
		case part == "":
			return nil, fmt.Errorf("entry %d is empty: want key=value, and one comma between two entries", i+1)
		case len(pair) < 2:
			return nil, fmt.Errorf("entry %d, %q, has no '=': want key=value (a comma in a value is '\\,')", i+1, part)
		case !utf8.ValidString(part):
			return nil, notUTF8Error(i, part)
		case pair[0] == "":
			return nil, fmt.Errorf("entry %d, %q, has no key: want key=value", i+1, part)
		}
		entries = append(entries, Entry{Key: unescaper.Replace(pair[0]), Value: unescaper.Replace(pair[1])})
	}
	return entries, nil
}

// notUTF8Error returns the error for entry i of a text, from 0. The remedy is the form of
// [EscapeInvalidUTF8].
func notUTF8Error(i int, part string) error {
	return fmt.Errorf("entry %d, %q, is not UTF-8: write each invalid byte as U+FFFD and its two hexadecimal digits, as Weir does",
		i+1, part)
}

var (
	escaper   = strings.NewReplacer(`\`, `\\`, ",", `\,`, "=", `\=`)
	unescaper = strings.NewReplacer(`\\`, `\`, `\,`, ",", `\=`, "=")
)

// EntriesText returns the text that [ParseEntries] parses into entries, such as
// user_id=42,action=login. A space at the start or end of a key is lost, because ParseEntries trims
// keys.
func EntriesText(entries []Entry) string {
	parts := make([]string, len(entries))
	for i, e := range entries {
		parts[i] = escaper.Replace(e.Key) + "=" + escaper.Replace(e.Value)
	}
	return strings.Join(parts, ",")
}

// splitUnescaped splits text at unescaped separators into at most n parts, or any number if n < 0.
// The parts keep their escapes.
func splitUnescaped(text string, separator byte, n int) []string {
	var parts []string
	start := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && strings.IndexByte(`\,=`, text[i+1]) >= 0:
			i++
		case text[i] == separator && len(parts)+1 != n:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// ParsePath parses the keys of a path, each with or without a value, such as user_id,action=login.
// The escapes are those of [ParseEntries].
func ParsePath(text string) ([]NodeSpec, error) {
	var nodes []NodeSpec
	for i, part := range splitUnescaped(text, ',', -1) {
		pair := append(splitUnescaped(part, '=', 2), "")
		entry := Entry{Key: unescaper.Replace(strings.TrimSpace(pair[0])), Value: unescaper.Replace(pair[1])}
		if !utf8.ValidString(part) {
			return nil, notUTF8Error(i, part)
		}
		if entry.Key == "" {
			return nil, fmt.Errorf("entry %d has no key: want keys such as user_id,action=login", i+1)
		}
		nodes = append(nodes, NodeSpec{Entry: entry})
	}
	return nodes, nil
}
