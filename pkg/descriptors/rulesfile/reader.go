package rulesfile

import (
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

const (
	// maxVisits bounds the work on one file: the nodes looked at, those behind aliases each time anew.
	maxVisits = 1_000_000
	// maxDepth bounds how many maps may lie in one another.
	maxDepth = 100
	// textPerVisit is how many bytes of text cost as much as a node.
	textPerVisit = 1024
)

// A reader walks the nodes of one file and collects what is wrong with them. Its methods tell a fault and go on, so
// that a file is read to its end.
type reader struct {
	file     string
	faults   Faults
	warnings Faults
	told     map[Fault]bool // what lies behind an alias is read many times, and told once
	found    int            // faults, those told before too
	visits   int
	depth    int
	stopped  bool // a bound was reached
}

// A field is a key of a map with its value.
type field struct{ key, value *yaml.Node }

type fields map[string]field

func (r *reader) fault(n *yaml.Node, format string, args ...any) {
	r.found++
	r.tell(&r.faults, n, format, args)
}

func (r *reader) warn(n *yaml.Node, format string, args ...any) { r.tell(&r.warnings, n, format, args) }

// tell points to the start of the file where n is nil.
func (r *reader) tell(to *Faults, n *yaml.Node, format string, args []any) {
	for i := range args {
		switch arg := args[i].(type) {
		case string:
			args[i] = strings.Map(printable, arg)
		case error:
			args[i] = strings.Map(printable, arg.Error())
		}
	}
	f := Fault{r.file, 1, 1, fmt.Sprintf(format, args...)}
	if n != nil && n.Line > 0 {
		f.Line, f.Column = n.Line, n.Column
	}
	if r.told[f] {
		return
	}
	if r.told == nil {
		r.told = map[Fault]bool{}
	}
	r.told[f] = true
	*to = append(*to, f)
}

// printable keeps what a file holds on its line.
func printable(c rune) rune {
	if unicode.IsControl(c) {
		return unicode.ReplacementChar
	}
	return c
}

// visit follows an alias. It is false from the moment on that the file turns out too large or too deep.
func (r *reader) visit(n *yaml.Node) (*yaml.Node, bool) {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	r.visits += 1 + len(n.Value)/textPerVisit
	switch {
	case r.stopped:
	case r.visits > maxVisits:
		r.stopped = true
		r.fault(n, "the file is too large: want at most %d nodes, counting those behind aliases each time", maxVisits)
	case r.depth > maxDepth:
		r.stopped = true
		r.fault(n, "nested too deeply: want at most %d levels, and no alias to what it is part of", maxDepth)
	}
	return n, !r.stopped
}

// fields reads a map by the keys of in. Where a key is there twice the last counts, and a key of the map itself goes
// before one that is merged in by "<<".
func (r *reader) fields(n *yaml.Node, in *section) (fields, bool) {
	all := fields{}
	return all, r.collect(n, in, all)
}

func (r *reader) collect(n *yaml.Node, in *section, into fields) bool {
	n, ok := r.visit(n)
	if !ok {
		return false
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "error loading config file: cannot unmarshal %s into a map: want the keys %s", shape(n), in)
		return false
	}
	r.depth++
	defer func() { r.depth-- }()
	own, merged := fields{}, []*yaml.Node(nil)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visit(n.Content[i])
		switch {
		case !ok:
			return false
		case key.ShortTag() == "!!merge":
			merged = append(merged, n.Content[i+1])
		case r.knows(key, n.Content[i+1], in):
			if _, twice := own[key.Value]; twice {
				r.warn(key, "key '%s' is given twice in one map: only the last counts", key.Value)
			}
			own[key.Value] = field{key, n.Content[i+1]}
		}
	}
	for name, f := range own {
		if _, set := into[name]; !set {
			into[name] = f
		}
	}
	for _, m := range merged {
		if !r.merge(m, in, into) {
			return false
		}
	}
	return true
}

// merge reads the value of "<<": a map, or a list of maps of which the first goes before the others.
func (r *reader) merge(n *yaml.Node, in *section, into fields) bool {
	n, ok := r.visit(n)
	if !ok || n.Kind != yaml.SequenceNode {
		return ok && r.collect(n, in, into)
	}
	for _, m := range n.Content {
		if !r.collect(m, in, into) {
			return false
		}
	}
	return true
}

// maps reads a list of maps, and tells what is not one.
func (r *reader) maps(f field) []*yaml.Node {
	n, ok := r.visit(f.value)
	if !ok {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(n, "error loading config file: cannot unmarshal %s into a list: %s wants a list of maps, each after a '-'",
			shape(n), f.key.Value)
		return nil
	}
	var maps []*yaml.Node
	for _, item := range n.Content {
		item, ok := r.visit(item)
		switch {
		case !ok:
			return nil
		case item.Kind != yaml.MappingNode:
			r.fault(item, "config error, yaml file contains list of type other than map: %s: %s wants a map after each '-'",
				quoted(item), f.key.Value)
		default:
			maps = append(maps, item)
		}
	}
	return maps
}

// text reads a text, or a number or a boolean as it is written; nothing at all is "". It is false where it told a
// fault.
func (r *reader) text(f field) (string, bool) {
	if f.value == nil {
		return "", true
	}
	n, ok := r.visit(f.value)
	if !ok {
		return "", false
	}
	switch tag := n.ShortTag(); {
	case n.Kind != yaml.ScalarNode:
	case tag == "!!str", tag == "!!int", tag == "!!bool", tag == "!!timestamp":
		return n.Value, true
	case tag == "!!null":
		return "", true
	case tag == "!!float":
		r.fault(n, "error checking config: %s is the float %s: write it in quotes, '%s', to make it text",
			f.key.Value, quoted(n), quoted(n))
		return "", false
	}
	r.fault(n, mismatch+": %s wants a text", n.Line, shape(n), "string", f.key.Value)
	return "", false
}

// mismatch is how the incumbent, and its YAML library, say that a value is of another type: in two lines. Its arguments
// are the line, the value and the type.
const mismatch = "error loading config file: yaml: unmarshal errors:\n  line %d: cannot unmarshal %s into %s"

// number reads a whole number from least to most. It returns otherwise if the key is absent or the value is faulty.
func (r *reader) number(f field, least, most, otherwise int64) int64 {
	if f.value == nil {
		return otherwise
	}
	n, ok := r.visit(f.value)
	if !ok {
		return otherwise
	}
	var v uint32
	whole := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!int" && n.Decode(&v) == nil
	if whole && int64(v) >= least && int64(v) <= most {
		return int64(v)
	}
	const want = ": %s wants a whole number from %d to %d"
	var problem string
	switch {
	case n.ShortTag() == "!!float" && strings.Trim(n.Value, "0123456789") == "":
		// YAML takes what no integer can hold for a float.
		problem = "error checking config: " + quoted(n) + " is too large"
	case n.ShortTag() == "!!float":
		problem = "error checking config: " + quoted(n) + " is a float"
	case n.ShortTag() == "!!null":
		problem = "empty value"
	case whole && int64(v) > most:
		problem = "value " + quoted(n) + " is too large"
	case whole:
		problem = "value " + quoted(n) + " is too small"
	default:
		r.fault(n, mismatch+want, n.Line, shape(n), "uint32", f.key.Value, least, most)
		return otherwise
	}
	r.fault(n, "%s"+want, problem, f.key.Value, least, most)
	return otherwise
}

// boolean reads true or false. An absent one is what otherwise says.
func (r *reader) boolean(f field, otherwise bool) bool {
	if f.value == nil {
		return otherwise
	}
	n, ok := r.visit(f.value)
	if !ok {
		return otherwise
	}
	var v bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil {
		r.fault(n, "cannot read %s: %s wants true or false", shape(n), f.key.Value)
		return otherwise
	}
	return v
}

// flag reads true or false as the incumbent does. What is absent or has no value is false.
func (r *reader) flag(f field) bool {
	if r.empty(f) {
		return false
	}
	n, ok := r.visit(f.value)
	if !ok {
		return false
	}
	v, ok := truth(n)
	switch {
	case ok:
	case n.ShortTag() == "!!float":
		r.fault(n, "error checking config: %s is a float: %s wants true or false", quoted(n), f.key.Value)
	default:
		r.fault(n, mismatch+": %s wants true or false", n.Line, shape(n), "bool", f.key.Value)
	}
	return v
}

// truth reads the words that YAML 1.1 has for true and false, as the incumbent does.
func truth(n *yaml.Node) (value, ok bool) {
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

// word reads one of words, the first if absent. It is false where it told a fault.
func (r *reader) word(f field, words ...string) (string, bool) {
	if f.value == nil {
		return words[0], true
	}
	n, ok := r.visit(f.value)
	if !ok {
		return "", false
	}
	for _, w := range words {
		if n.Kind == yaml.ScalarNode && n.Value == w {
			return w, true
		}
	}
	r.fault(n, "unknown %s '%s': want one of %s", f.key.Value, quoted(n), strings.Join(words, ", "))
	return "", false
}

// empty tells whether a key has no value: that equals its absence, as in the incumbent, but is worth a warning.
func (r *reader) empty(f field) bool {
	if f.value == nil {
		return true
	}
	n, ok := r.visit(f.value)
	if !ok || n.Kind != yaml.ScalarNode || n.ShortTag() != "!!null" {
		return !ok
	}
	r.warn(f.key, "key '%s' has no value, and so no effect", f.key.Value)
	return true
}

// null tells whether a key is absent or has no value.
func (r *reader) null(f field) bool {
	if f.value == nil {
		return true
	}
	n, ok := r.visit(f.value)
	return !ok || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// shape is what YAML takes n for, in the words of its errors.
func shape(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return n.ShortTag()
	}
	return n.ShortTag() + " `" + quoted(n) + "`"
}

// quoted is the text of n, or its kind, short enough for a message.
func quoted(n *yaml.Node) string {
	switch {
	case n.Kind != yaml.ScalarNode:
		return "a " + strings.TrimPrefix(n.ShortTag(), "!!")
	case n.ShortTag() == "!!null":
		return "null"
	}
	return short(n.Value)
}

func short(s string) string {
	const most = 100
	return cut(s, most)
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
