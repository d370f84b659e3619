package rulesfile

import (
	"math"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// metadata reads a map that google.protobuf.Struct can represent; nil if absent.
func (r *reader) metadata(f field) map[string]any {
	n, ok := r.valueOf(f)
	if !ok || r.empty(f) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "want a map", "'metadata' is %s, not a map", shape(n))
		return nil
	}
	m := map[string]any{}
	r.object(n, m)
	return m
}

// object reads the map n into m. Existing keys of m stay, and keys of n override merged ones.
func (r *reader) object(n *yaml.Node, m map[string]any) {
	r.depth++
	defer func() { r.depth-- }()
	direct, merged := map[string]any{}, []*yaml.Node(nil)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visit(n.Content[i])
		switch {
		case !ok:
			return
		case key.ShortTag() == "!!merge":
			merged = append(merged, n.Content[i+1])
			continue
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" || key.ShortTag() == "!!binary":
			r.fault(key, "want a text", "a key of 'metadata' is %s", shape(key))
			continue
		case key.ShortTag() != "!!str":
			r.warn(metadataKey, key, "quote it", "the key %s of 'metadata' is not a text, and is read as '%s'", quoted(key), quoted(key))
		}
		if _, twice := direct[key.Value]; twice {
			r.warn(duplicateKey, key, "remove one", "key '%s' is given twice in one map, and only the last counts", excerpt(key.Value))
		}
		direct[key.Value] = r.value(n.Content[i+1])
	}
	for k, v := range direct {
		if _, set := m[k]; !set {
			m[k] = v
		}
	}
	for _, n := range merged {
		r.mergeObject(n, m)
	}
}

func (r *reader) mergeObject(n *yaml.Node, m map[string]any) {
	n, ok := r.visit(n)
	switch {
	case !ok:
	case n.Kind == yaml.MappingNode:
		r.object(n, m)
	case n.Kind == yaml.SequenceNode:
		r.depth++
		defer func() { r.depth-- }()
		for _, item := range n.Content {
			r.mergeObject(item, m)
		}
	default:
		r.fault(n, "want a map or a list of maps", "'<<' is %s", shape(n))
	}
}

func (r *reader) value(n *yaml.Node) any {
	n, ok := r.visit(n)
	if !ok {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		r.object(n, m)
		return m
	case yaml.SequenceNode:
		r.depth++
		defer func() { r.depth-- }()
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, r.value(item))
		}
		return list
	}
	return r.scalar(n)
}

func (r *reader) scalar(n *yaml.Node) any {
	if b, ok := ParseBool(n); ok {
		return b
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!int", "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			r.fault(n, "want a finite number", "Envoy cannot receive the number %s in metadata", quoted(n))
			return nil
		}
		return f
	case "!!binary":
		var s string
		if err := n.Decode(&s); err != nil || !utf8.ValidString(s) {
			r.fault(n, "write text", "Envoy cannot receive binary data in metadata")
			return nil
		}
		return s
	}
	return n.Value
}
