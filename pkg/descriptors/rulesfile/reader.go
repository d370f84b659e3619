package rulesfile

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

const (
	// maxNodes bounds the nodes read in one file. A node behind an alias counts each time, against
	// exponential aliases.
	maxNodes = 1_000_000
	maxDepth = 100
	// maxFaults and maxWarnings bound the results for one file. Reading stops at maxFaults.
	maxFaults   = 1000
	maxWarnings = 10_000
	// textPerNode is the number of bytes of text that count as one more node.
	textPerNode = 1024
	// levelsPerNode is the number of levels above a descriptor that count as one more node, because
	// each descriptor keeps its path.
	levelsPerNode = 4
)

// A reader reads the nodes of one file. Its methods record faults and continue, so that one pass
// finds all of them.
type reader struct {
	file       string
	generated  bool // see File
	faults     []Diagnostic
	warnings   []Diagnostic
	ignores    []ignore
	recorded   map[Diagnostic]bool // removes duplicates from nodes that aliases repeat
	faultCount int                 // repeated faults included
	nodes      int                 // counted so far, see maxNodes
	depth      int
	stopped    bool                               // at a bound
	onDenies   map[*yaml.Node]*descriptors.OnDeny // an on_deny behind an alias is one value
	synonyms   map[string]string                  // advice for unknown keys
	hasLocal   bool                               // an on_store_error is local
}

func newReader(f File) reader {
	return reader{
		file: f.Name, generated: f.Generated, recorded: map[Diagnostic]bool{}, onDenies: map[*yaml.Node]*descriptors.OnDeny{},
		synonyms: ruleSynonyms,
	}
}

// fields are the keys of one map with their values.
type fields struct {
	at           *yaml.Node // the map
	byName       map[string]field
	faultsBefore int // the faultCount when the reading of the map began
}

// A field is a key with its value. Both are nil if the key is absent.
type field struct{ key, value *yaml.Node }

func (f fields) get(name string) field        { return f.byName[name] }
func (f fields) has(name string) bool         { return f.byName[name].key != nil }
func (f fields) key(name string) *yaml.Node   { return f.byName[name].key }
func (f fields) value(name string) *yaml.Node { return f.byName[name].value }

// faulty reports whether a key of f, or a value that has been read, is faulty. After a faulty key,
// an absent key may only be misspelled.
func (r *reader) faulty(f fields) bool { return r.faultCount > f.faultsBefore }

// fault records a fault at n, or at the start of the file if n is nil. The remedy may be empty.
func (r *reader) fault(n *yaml.Node, message, remedy string) { r.faultOf(invalid, n, message, remedy) }

// faultOf is fault for a fault with an id of its own.
func (r *reader) faultOf(id string, n *yaml.Node, message, remedy string) {
	r.faultCount++
	if len(r.faults) >= maxFaults {
		r.stopped = true
		return
	}
	r.faults = r.appendNew(r.faults, id, n, message, remedy)
}

// faultyValue records a fault at n, the value of a key.
func (r *reader) faultyValue(key string, n *yaml.Node, remedy string) {
	r.fault(n, fmt.Sprintf("'%s' is %s", key, describe(n)), remedy)
}

// warn records a warning with an id. The other arguments are those of fault.
func (r *reader) warn(id string, n *yaml.Node, message, remedy string) {
	if len(r.warnings) < maxWarnings {
		r.warnings = r.appendNew(r.warnings, id, n, message, remedy)
	}
}

// appendNew appends a diagnostic to all, unless it has been recorded already.
func (r *reader) appendNew(all []Diagnostic, id string, n *yaml.Node, message, remedy string) []Diagnostic {
	d := Diagnostic{
		File: r.file, Line: 1, Column: 1, ID: id, Message: strings.Map(printable, message), Remedy: strings.Map(printable, remedy),
	}
	if n != nil && n.Line > 0 {
		d.Line, d.Column = n.Line, n.Column
	}
	if r.recorded[d] {
		return all
	}
	r.recorded[d] = true
	return append(all, d)
}

const spaceRemedy = "write a space after ':'"

func printable(c rune) rune {
	if unicode.IsControl(c) {
		return unicode.ReplacementChar
	}
	return c
}

// resolve follows an alias. It returns false once a bound of the file is reached.
func (r *reader) resolve(n *yaml.Node) (*yaml.Node, bool) {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n, !r.stopped
}

// visit counts a node and resolves it. It returns false if the file exceeds maxNodes or maxDepth.
// Keys, their values and the items of lists are visited once, when their map or list is read.
func (r *reader) visit(n *yaml.Node) (*yaml.Node, bool) {
	n, _ = r.resolve(n)
	r.nodes += 1 + len(n.Value)/textPerNode
	switch {
	case r.stopped:
	case r.nodes > maxNodes:
		r.stopped = true
		r.fault(n, fmt.Sprintf("the file is too large: it has more than %d nodes, counting those behind aliases each time", maxNodes),
			"split it, or use fewer aliases")
	case r.depth > maxDepth:
		r.stopped = true
		r.fault(n, fmt.Sprintf("nested too deeply: more than %d levels", maxDepth), "remove levels, or an alias that contains itself")
	}
	return n, !r.stopped
}

// visitEntry visits key i of a map and its value. It returns the key.
func (r *reader) visitEntry(n *yaml.Node, i int) (key *yaml.Node, ok bool) {
	key, _ = r.visit(n.Content[i])
	_, ok = r.visit(n.Content[i+1])
	return key, ok
}

// readFields reads a map with the keys of schema. Of duplicate keys, the last one counts. Keys of
// the map override keys merged by "<<".
func (r *reader) readFields(n *yaml.Node, schema *MapSchema) (fields, bool) {
	f := fields{at: n, byName: map[string]field{}, faultsBefore: r.faultCount}
	return f, r.collect(n, schema, f.byName)
}

func (r *reader) collect(n *yaml.Node, schema *MapSchema, into map[string]field) bool {
	n, ok := r.resolve(n)
	if !ok {
		return false
	}
	if n.Kind != yaml.MappingNode {
		r.notMap(n, schema)
		return false
	}
	r.depth++
	defer func() { r.depth-- }()
	direct, merged := map[string]field{}, []*yaml.Node(nil)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visitEntry(n, i)
		switch {
		case !ok:
			return false
		case key.ShortTag() == "!!merge":
			merged = append(merged, n.Content[i+1])
		case r.checkKey(key, n.Content[i+1], schema):
			if _, twice := direct[key.Value]; twice {
				r.warn(duplicateKey, key, fmt.Sprintf("key '%s' is given twice in one map, and only the last counts", excerpt(key.Value)),
					"remove one")
			}
			direct[key.Value] = field{key, n.Content[i+1]}
		}
	}
	for name, f := range direct {
		if _, set := into[name]; !set {
			into[name] = f
		}
	}
	for _, m := range merged {
		if !r.merge(m, schema, into) {
			return false
		}
	}
	return true
}

func (r *reader) notMap(n *yaml.Node, schema *MapSchema) {
	switch {
	case schema == rateLimitSchema && n.Kind == yaml.SequenceNode:
		r.fault(n, "'rate_limit' is a list", "use 'rate_limits' for several limits")
	case schema == metadataSchema:
		r.fault(n, fmt.Sprintf("'<<' is %s", describe(n)), "want a map or a list of maps")
	case schema == fileSchema || schema == overlaySchema:
		r.fault(n, fmt.Sprintf("the file is %s, not a map", describe(n)), "begin with 'domain: <name>' and 'descriptors:'")
	default:
		r.fault(n, fmt.Sprintf("%s is %s, not a map", schema.Name, describe(n)), "want a map with the keys "+schema.String())
	}
}

// merge reads the value of "<<": a map, or a list of maps in which earlier maps override later
// ones.
func (r *reader) merge(n *yaml.Node, schema *MapSchema, into map[string]field) bool {
	n, ok := r.resolve(n)
	if !ok || n.Kind != yaml.SequenceNode {
		return ok && r.collect(n, schema, into)
	}
	for _, m := range n.Content {
		if m, ok := r.visit(m); !ok || !r.collect(m, schema, into) {
			return false
		}
	}
	return true
}

// eachDescriptor calls read for each descriptor of a list. It warns about a list without a value.
func (r *reader) eachDescriptor(list field, schema *MapSchema, read func(fields)) {
	if r.warnIfEmpty(list) {
		return
	}
	for _, n := range r.readMaps(list) {
		if f, ok := r.readFields(n, schema); ok {
			r.depth++
			read(f)
			r.depth--
		}
	}
}

// readMaps returns the items of a list of maps. It records a fault for each other item.
func (r *reader) readMaps(f field) []*yaml.Node {
	n, ok := r.valueOf(f)
	if !ok {
		return nil
	}
	return slices.DeleteFunc(r.readSequence(n, f.key.Value, listRemedy), func(item *yaml.Node) bool {
		if item.Kind == yaml.MappingNode {
			return false
		}
		remedy := "write a map after each '- '"
		if item.Kind == yaml.ScalarNode && strings.Contains(item.Value, ":") {
			remedy = spaceRemedy
		}
		r.fault(item, fmt.Sprintf("an item of '%s' is %s, not a map", f.key.Value, describe(item)), remedy)
		return true
	})
}

// valueOf returns the value of a field. It returns false if the key is absent, or at a bound of the
// file.
func (r *reader) valueOf(f field) (*yaml.Node, bool) {
	if f.value == nil {
		return nil, false
	}
	return r.resolve(f.value)
}

// readSequence returns the items of a list; none after a fault.
func (r *reader) readSequence(n *yaml.Node, name, remedy string) (items []*yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.fault(n, fmt.Sprintf("'%s' is %s, not a list", name, describe(n)), remedy)
		return nil
	}
	for _, item := range n.Content {
		item, ok := r.visit(item)
		if !ok {
			return nil
		}
		items = append(items, item)
	}
	return items
}

const listRemedy = "begin each item with '- '"
