package rulesfile

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// readText reads a scalar as text, as it is written. An absent or empty value is "". It returns
// false after a fault.
func (r *reader) readText(f field) (string, bool) {
	n, ok := r.valueOf(f)
	if !ok {
		return "", f.value == nil
	}
	return r.readTextOf(n, "'"+f.key.Value+"'")
}

// readTextOf is readText for a node that has been visited. Messages use name, which contains its
// quotes.
func (r *reader) readTextOf(n *yaml.Node, name string) (string, bool) {
	switch tag := n.ShortTag(); {
	case n.Kind != yaml.ScalarNode:
	case tag == "!!str", tag == "!!int", tag == "!!bool", tag == "!!timestamp":
		return n.Value, true
	case tag == "!!null":
		return "", true
	case tag == "!!float":
		r.fault(n, fmt.Sprintf("%s is the number %s, not a text", name, excerptOf(n)), "quote it: '"+excerptOf(n)+"'")
		return "", false
	}
	r.fault(n, fmt.Sprintf("%s is %s, not a text", name, describe(n)), "want a text")
	return "", false
}

// readNumber reads an integer from minimum to maximum. It returns def if the key is absent or
// faulty.
func (r *reader) readNumber(f field, minimum, maximum, def int64) int64 {
	n, ok := r.valueOf(f)
	if !ok {
		return def
	}
	var v int64
	isInteger := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Decode(&v) == nil
	if isInteger && v >= minimum && v <= maximum {
		r.warnOctal(n, f.key.Value, v)
		return v
	}
	r.faultyValue(f.key.Value, n, numberRemedy(n, f.key.Value, minimum, maximum))
	return def
}

// numberRemedy returns the advice for a value that is not an integer from minimum to maximum.
func numberRemedy(n *yaml.Node, key string, minimum, maximum int64) string {
	digits := n.Value != "" && strings.Trim(n.Value, "0123456789") == ""
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" && digits {
		return fmt.Sprintf("remove the quotes: '%s: %s'", key, excerptOf(n))
	}
	return fmt.Sprintf("want a whole number from %d to %d", minimum, maximum)
}

// readBool reads true or false. It returns false if the key is absent or faulty.
func (r *reader) readBool(f field) (v bool) {
	n, ok := r.valueOf(f)
	if ok && (n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil) {
		r.faultyValue(f.key.Value, n, "want true or false")
	}
	return v
}

// readLenientBool reads a boolean in any spelling that envoyproxy/ratelimit accepts. An absent or
// empty value is false.
func (r *reader) readLenientBool(f field) bool {
	n, ok := r.valueOf(f)
	if !ok || r.warnIfEmpty(f) {
		return false
	}
	v, ok := ParseBool(n)
	if !ok {
		r.faultyValue(f.key.Value, n, "want true or false")
	}
	return v
}

// ParseBool accepts the booleans of YAML 1.1, such as yes, as envoyproxy/ratelimit does. The
// library reads YAML 1.2.
func ParseBool(n *yaml.Node) (value, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Style != 0 && n.ShortTag() != "!!bool" {
		return false, false
	}
	switch n.Value {
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// readChoice reads one of choices. It returns "" if the key is absent or faulty.
func (r *reader) readChoice(f field, choices ...string) string {
	n, ok := r.valueOf(f)
	switch {
	case !ok:
	case n.Kind == yaml.ScalarNode && slices.Contains(choices, n.Value):
		return n.Value
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.faultyValue(f.key.Value, n, suggest("", choices))
	default:
		r.fault(n, fmt.Sprintf("unknown %s '%s'", f.key.Value, excerpt(n.Value)), suggest(n.Value, choices))
	}
	return ""
}

// warnIfEmpty reports whether a key is absent or has no value. It warns about a missing value, but
// not about an explicit null.
func (r *reader) warnIfEmpty(f field) bool {
	n, ok := r.valueOf(f)
	switch {
	case !ok:
		return true
	case !isNull(n):
		return false
	case n.Value == "null": // as in an export of rules by xDS
		return true
	}
	r.warn(keyWithoutValue, f.key, fmt.Sprintf("key '%s' has no value and no effect", f.key.Value), "remove it, or give it a value")
	return true
}

// isUnset reports whether a key is absent or has no value.
func (r *reader) isUnset(f field) bool {
	n, ok := r.valueOf(f)
	return !ok || isNull(n)
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// describe returns what a message calls a value, such as 5, the text 'x' or a list.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.ShortTag() == "!!null":
		return "empty"
	case n.ShortTag() == "!!str":
		return "the text '" + excerpt(n.Value) + "'"
	case n.ShortTag() == "!!binary":
		return "binary data"
	case n.Value == "":
		return "a value with the tag " + excerpt(n.Tag)
	}
	return excerpt(n.Value)
}

// excerptOf truncates the text of n for a message, or returns its kind.
func excerptOf(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		return describe(n)
	}
	return excerpt(n.Value)
}

// excerpt truncates a text of the file for a message.
func excerpt(s string) string {
	const maxExcerpt = 100
	return descriptors.Truncate(s, maxExcerpt)
}
