package rulesfile

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// readMetadata reads a map that google.protobuf.Struct can represent; nil if absent.
func (r *reader) readMetadata(f field) map[string]any {
	n, ok := r.valueOf(f)
	if !ok || r.warnIfEmpty(f) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, fmt.Sprintf("'metadata' is %s, not a map", describe(n)), "want a map")
		return nil
	}
	return r.readMetadataMap(n)
}

// metadataSchema is the schema of a map with any keys.
var metadataSchema = &MapSchema{Name: "metadata"}

// checkMetadataKey reports whether a key is a text or can be read as one. If not, it records a
// fault.
func (r *reader) checkMetadataKey(key *yaml.Node) bool {
	switch tag := key.ShortTag(); {
	case key.Kind != yaml.ScalarNode || tag == "!!null" || tag == "!!binary":
		r.fault(key, fmt.Sprintf("a key of 'metadata' is %s", describe(key)), "want a text")
		return false
	case tag != "!!str":
		r.warn(metadataKey, key, fmt.Sprintf("the key %s of 'metadata' is not a text, and is read as '%s'", excerptOf(key), excerptOf(key)),
			"quote it")
	}
	return true
}

// readMetadataMap reads a map of metadata.
func (r *reader) readMetadataMap(n *yaml.Node) map[string]any {
	f, _ := r.readFields(n, metadataSchema)
	r.depth++
	defer func() { r.depth-- }()
	m := make(map[string]any, len(f.byName))
	for _, name := range slices.Sorted(maps.Keys(f.byName)) {
		m[name] = r.readMetadataValue(f.value(name))
	}
	return m
}

func (r *reader) readMetadataValue(n *yaml.Node) any {
	n, ok := r.resolve(n)
	if !ok {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		return r.readMetadataMap(n)
	case yaml.SequenceNode:
		r.depth++
		defer func() { r.depth-- }()
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			r.visit(item)
			list = append(list, r.readMetadataValue(item))
		}
		return list
	}
	return r.readMetadataScalar(n)
}

func (r *reader) readMetadataScalar(n *yaml.Node) any {
	if b, ok := ParseBool(n); ok {
		return b
	}
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!int", "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			r.fault(n, fmt.Sprintf("Envoy cannot receive the number %s in metadata", excerptOf(n)), "want a finite number")
			return nil
		}
		return f
	case "!!binary":
		var s string
		if err := n.Decode(&s); err != nil || !utf8.ValidString(s) {
			r.fault(n, "Envoy cannot receive binary data in metadata", "write text")
			return nil
		}
		return s
	}
	return n.Value
}
