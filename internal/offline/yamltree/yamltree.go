// Package yamltree reads YAML and JSON as trees whose values have lines, for files of other
// programs.
package yamltree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// The bounds of a file with its aliases replaced, because a few lines of aliases could exhaust the
// memory.
const (
	maxNodes = 1 << 20
	maxDepth = 200
)

// A Tree is a value in a file. The zero Tree is an absent value.
type Tree struct {
	file string
	node *yaml.Node
}

// Read returns the documents of a file, with aliases replaced by their values.
func Read(file string, data []byte) ([]Tree, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	budget := maxNodes
	var documents []Tree
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, errors.New(rulesfile.SyntaxFault(rulesfile.File{Name: file, Data: data}, err).String())
		}
		if err := expand(&doc, &budget, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, root := range doc.Content {
			documents = append(documents, Tree{file, root})
		}
	}
}

// expand replaces aliases by the nodes that they name. budget is the number of nodes that may still
// be added.
func expand(n *yaml.Node, budget *int, depth int) error {
	if *budget--; *budget < 0 || depth > maxDepth {
		return fmt.Errorf("line %d: the file is too large or too deep, with its aliases replaced: "+
			"pass only the part that has the limits, such as one route or one policy", n.Line)
	}
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			copied := *child.Alias
			copied.Content, copied.Anchor = slices.Clone(copied.Content), ""
			n.Content[i], child = &copied, &copied
		}
		if err := expand(child, budget, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Exists reports whether the value is present and not null.
func (t Tree) Exists() bool { return t.node != nil && t.node.Tag != "!!null" }

// IsMap reports whether the value is a map.
func (t Tree) IsMap() bool { return t.node != nil && t.node.Kind == yaml.MappingNode }

// IsList reports whether the value is a list.
func (t Tree) IsList() bool { return t.node != nil && t.node.Kind == yaml.SequenceNode }

// Line returns the line of the value, or 0 if it is absent.
func (t Tree) Line() int {
	if t.node == nil {
		return 0
	}
	return t.node.Line
}

// Source returns the file and line, such as envoy.yaml:12.
func (t Tree) Source() string { return fmt.Sprintf("%s:%d", t.file, t.Line()) }

// Errorf returns an error that begins with the file and line of the value.
func (t Tree) Errorf(format string, values ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{t.Source()}, values...)...)
}

// Fields yields the keys and values of a map.
func (t Tree) Fields() iter.Seq2[Tree, Tree] {
	return func(yield func(Tree, Tree) bool) {
		if !t.IsMap() {
			return
		}
		for pair := range slices.Chunk(t.node.Content, 2) {
			if !yield(Tree{t.file, pair[0]}, Tree{t.file, pair[1]}) {
				return
			}
		}
	}
}

// Get returns the value at a path of keys. Of duplicate keys, the last one counts.
func (t Tree) Get(path ...string) Tree {
	for _, name := range path {
		t = t.last(name, name)
	}
	return t
}

// Field is Get for the fields of a protobuf message. Like the JSON of protobuf, it also accepts
// each name in camelCase.
func (t Tree) Field(path ...string) Tree {
	for _, name := range path {
		t = t.last(name, camelCase(name))
	}
	return t
}

// last returns the value of the last key that is name or alias.
func (t Tree) last(name, alias string) (found Tree) {
	for key, value := range t.Fields() {
		if text := key.node.Value; text == name || text == alias {
			found = value
		}
	}
	return found
}

func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// Items returns the elements of a list.
func (t Tree) Items() []Tree {
	if !t.IsList() {
		return nil
	}
	items := make([]Tree, len(t.node.Content))
	for i, n := range t.node.Content {
		items[i] = Tree{t.file, n}
	}
	return items
}

// Text returns a scalar as it is written, or "".
func (t Tree) Text() string {
	if !t.Exists() || t.node.Kind != yaml.ScalarNode {
		return ""
	}
	return t.node.Value
}

// IsTrue reports whether t is true, which may be in quotes or, as in YAML 1.1, a word such as yes.
func (t Tree) IsTrue() bool {
	value, ok := t.boolean()
	return ok && value
}

// IsFalse reports whether t is false, in any form that [Tree.IsTrue] accepts.
func (t Tree) IsFalse() bool {
	value, ok := t.boolean()
	return ok && !value
}

func (t Tree) boolean() (value, ok bool) {
	if t.node == nil {
		return false, false
	}
	if value, ok := rulesfile.ParseBool(t.node); ok {
		return value, true
	}
	return t.Text() == "true", t.Text() == "true" || t.Text() == "false"
}

// Number returns a whole number from 0 to maximum.
func (t Tree) Number(maximum int64) (value int64, ok bool) {
	// Decode accepts null and fractions, too.
	if t.node == nil || t.node.ShortTag() != "!!int" || t.node.Decode(&value) != nil {
		return 0, false
	}
	return value, value >= 0 && value <= maximum
}

// Value decodes the value. Words such as yes are booleans, as in YAML 1.1, and so they are in later
// calls of Text. A date is a text, as in YAML 1.2.
func (t Tree) Value() (value any, err error) {
	setTags(t.node)
	if err := t.node.Decode(&value); err != nil {
		return nil, t.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	return value, nil
}

// setTags sets the tags of booleans and dates, which the decoder would read otherwise.
func setTags(n *yaml.Node) {
	if value, ok := rulesfile.ParseBool(n); ok {
		n.Tag, n.Value = "!!bool", fmt.Sprint(value)
	} else if n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for i, child := range n.Content {
		if isKey := n.Kind == yaml.MappingNode && i%2 == 0; !isKey {
			setTags(child)
		}
	}
}
