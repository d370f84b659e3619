package rulestest

import (
	"errors"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// number in a value stands for the number of the request in its step, from 1.
const number = "{n}"

var errNoValue = errors.New("an entry has no '='")

// parseEntries parses one descriptor, such as user_id=42,action=login. A backslash makes the next character part of the text. In
// a value only the first '=' of the entry has a meaning. The empty text is a descriptor without entries.
func parseEntries(text string) ([]descriptors.Entry, error) {
	var entries []descriptors.Entry
	var b strings.Builder
	var e descriptors.Entry
	inValue, escaped := false, false
	end := func() error {
		if !inValue {
			return errNoValue
		}
		e.Value = b.String()
		if e.Key == "" {
			return errors.New("an entry has no key")
		}
		if strings.TrimSpace(e.Key) != e.Key {
			return errors.New("a key begins or ends with a space")
		}
		entries = append(entries, e)
		e, inValue = descriptors.Entry{}, false
		b.Reset()
		return nil
	}
	if text == "" {
		return nil, nil
	}
	for _, c := range text {
		switch {
		case escaped:
			b.WriteRune(c)
			escaped = false
		case c == '\\':
			escaped = true
		case c == '=' && !inValue:
			e.Key, inValue = b.String(), true
			b.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			b.WriteRune(c)
		}
	}
	if escaped {
		return nil, errors.New("nothing follows the last backslash")
	}
	return entries, end()
}

// formatEntries is the inverse of parseEntries.
func formatEntries(entries []descriptors.Entry) string {
	key := strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)
	value := strings.NewReplacer(`\`, `\\`, `,`, `\,`)
	parts := make([]string, len(entries))
	for i, e := range entries {
		parts[i] = key.Replace(e.Key) + "=" + value.Replace(e.Value)
	}
	return strings.Join(parts, ",")
}

// numbered returns entries with the number of a request in their values.
func numbered(entries []descriptors.Entry, n int) []descriptors.Entry {
	all := make([]descriptors.Entry, len(entries))
	for i, e := range entries {
		all[i] = descriptors.Entry{Key: e.Key, Value: strings.ReplaceAll(e.Value, number, strconv.Itoa(n))}
	}
	return all
}
