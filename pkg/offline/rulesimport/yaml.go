package rulesimport

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// fieldsOf returns the fields of a map by name, following aliases. It reports an unknown field as a problem.
func (i *Imported) fieldsOf(n *yaml.Node, known ...string) map[string]*yaml.Node {
	fields := map[string]*yaml.Node{}
	if n = resolveAlias(n); n == nil || n.Kind != yaml.MappingNode {
		return fields
	}
	for j := 0; j+1 < len(n.Content); j += 2 {
		key := n.Content[j]
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			i.problem(key.Line, "%s is not known here, so its meaning is not carried over", key.Value)
		}
		fields[key.Value] = resolveAlias(n.Content[j+1])
	}
	return fields
}

// resolveAlias returns the node that an alias names.
func resolveAlias(n *yaml.Node) *yaml.Node {
	for range 100 {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// itemsOf returns the elements of a list.
func itemsOf(n *yaml.Node) []*yaml.Node {
	if n = resolveAlias(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	items := make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		if c = resolveAlias(c); c != nil {
			items = append(items, c)
		}
	}
	return items
}

// textOf returns a scalar, or "".
func textOf(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// numberOf returns a whole number from 0 to maximum.
func numberOf(n *yaml.Node, maximum int64) (value int64, ok bool) {
	if n == nil || n.Decode(&value) != nil {
		return 0, false
	}
	return value, value >= 0 && value <= maximum
}

// documentsOf reads the documents of a YAML file.
func documentsOf(name string, data []byte) ([]*yaml.Node, error) {
	if err := checkSize(name, data); err != nil {
		return nil, err
	}
	var all []*yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case err != nil && errors.Is(err, io.EOF):
			if len(all) == 0 {
				return nil, fmt.Errorf("%s: the file is empty: correct the path", name)
			}
			return all, nil
		case err != nil:
			return nil, errors.New(rulesfile.SyntaxFault(rulesfile.File{Name: name, Data: data}, err).String())
		}
		if len(doc.Content) > 0 {
			all = append(all, doc.Content[0])
		}
	}
}

// firstLine returns the line of the first node that exists.
func firstLine(nodes ...*yaml.Node) int {
	line := 0
	for _, n := range nodes {
		if n != nil {
			line = cmp.Or(line, n.Line)
		}
	}
	return line
}
