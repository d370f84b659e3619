package rulesfile

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Document reads a YAML file whose grammar is not that of rules, and finds all of its faults. It
// has the bounds of a rules file on nodes and nesting, and stops with a fault at a bound.
type Document struct{ reader }

// A Node is a value in a [Document]. The zero Node is an absent value.
type Node struct{ n *yaml.Node }

// NewDocument parses a file and returns its reader and the root of its first YAML document. If the
// file is empty or not YAML, it records a fault and the root is absent. Messages refer to page,
// such as docs/rules.md. synonyms maps unknown keys, in lower case and without '-', to advice such
// as "write 'after'".
func NewDocument(f File, page string, synonyms map[string]string) (*Document, Node) {
	d := &Document{newReader(f)}
	d.synonyms = synonyms
	root, more, err := decode(f.Data)
	switch {
	case err != nil:
		m := syntaxMistake(f.Data, err)
		d.fault(&yaml.Node{Line: m.Line, Column: m.Column}, m.Message, strings.Replace(m.Remedy, "docs/rules.md", page, 1))
		return d, Node{}
	case root == nil || isNull(root):
		d.fault(root, "the file is empty", "see the examples in "+page)
		return d, Node{}
	case more != nil:
		d.fault(more, "only the first YAML document of a file is read, and this one is not", "put each document in a file of its own")
	}
	return d, Node{root}
}

// Err returns the [Faults] recorded so far, or nil.
func (d *Document) Err() error {
	if len(d.faults) == 0 {
		return nil
	}
	return sortedFaults(d.faults)
}

// Fault records a fault at n, or at the start of the file if n is absent. The remedy may be empty.
func (d *Document) Fault(n Node, message, remedy string) { d.fault(n.n, message, remedy) }

// FaultAt records a fault at a line.
func (d *Document) FaultAt(line int, message, remedy string) {
	d.fault(&yaml.Node{Line: line, Column: 1}, message, remedy)
}

// Fields holds the keys and values of a map.
type Fields struct {
	d *Document
	f fields
}

// Fields reads n as a map with the keys of s, and records a fault for each unknown key.
func (d *Document) Fields(n Node, s *MapSchema) (Fields, bool) {
	if n.n == nil {
		return Fields{}, false
	}
	f, ok := d.readFields(n.n, s)
	return Fields{d, f}, ok
}

// At returns the map itself.
func (f Fields) At() Node { return Node{f.f.at} }

// Has reports whether a key is present, with or without a value.
func (f Fields) Has(name string) bool { return f.f.has(name) }

// Key returns the key of a field.
func (f Fields) Key(name string) Node { return Node{f.f.key(name)} }

// Value returns the value of a field, following an alias. It is absent once a bound of the file is
// reached.
func (f Fields) Value(name string) Node {
	n, ok := f.d.valueOf(f.f.get(name))
	if !ok {
		return Node{}
	}
	return Node{n}
}

// Text reads a scalar as text, as it is written. It returns "" if the key is absent, or after a
// fault.
func (f Fields) Text(name string) string {
	text, _ := f.d.readText(f.f.get(name))
	return text
}

// Integer reads an integer from minimum to maximum. It returns def if the key is absent, or after a
// fault.
func (f Fields) Integer(name string, minimum, maximum, def int64) int64 {
	return f.d.readNumber(f.f.get(name), minimum, maximum, def)
}

// Bool reads true or false. It returns false if the key is absent, or after a fault.
func (f Fields) Bool(name string) bool { return f.d.readBool(f.f.get(name)) }

// Choice reads one of choices. It returns "" if the key is absent, or after a fault.
func (f Fields) Choice(name string, choices ...string) string {
	return f.d.readChoice(f.f.get(name), choices...)
}

// Duration reads a duration of whole microseconds from 0 to maximum, such as 90s. It returns 0 if
// the key is absent, or after a fault.
func (f Fields) Duration(name string, maximum time.Duration) time.Duration {
	n, ok := f.d.valueOf(f.f.get(name))
	if !ok {
		return 0
	}
	d, ok := parseDuration(n, 0, maximum)
	if !ok {
		f.d.faultyValue(name, n, durationRemedy(n, maximum))
		return 0
	}
	return d
}

func durationRemedy(n *yaml.Node, maximum time.Duration) string {
	seconds := n.Value + "s"
	if d, err := time.ParseDuration(seconds); err == nil && d <= maximum && strings.Trim(seconds, "0123456789.") == "s" {
		return "write a unit, such as " + seconds
	}
	return wantDuration(0, maximum)
}

// Item reads n as [Fields.Text] does. Messages use name.
func (d *Document) Item(n Node, name string) (string, bool) {
	if n.n == nil {
		return "", false
	}
	return d.readTextOf(n.n, name)
}

// Items returns the items of a list, following aliases. It records a fault if n is present and not
// a list.
func (d *Document) Items(n Node, name string) (all []Node) {
	if n.n == nil {
		return nil
	}
	for _, item := range d.readSequence(n.n, name, listRemedy) {
		all = append(all, Node{item})
	}
	return all
}

// Line returns the line of n, from 1; 0 if n is absent.
func (n Node) Line() int {
	if n.n == nil {
		return 0
	}
	return n.n.Line
}

// IsMap reports whether n is a map.
func (n Node) IsMap() bool { return n.n != nil && n.n.Kind == yaml.MappingNode }

// IsList reports whether n is a list.
func (n Node) IsList() bool { return n.n != nil && n.n.Kind == yaml.SequenceNode }

// String describes n for a message: 5, the text 'x', a list.
func (n Node) String() string {
	if n.n == nil {
		return "missing"
	}
	return describe(n.n)
}
