// Package rulesyaml writes rules in the YAML that package rulesfile reads.
package rulesyaml

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// A Draft is a descriptor of rules to be written, with its child descriptors. The root of a domain
// has no Spec.
type Draft struct {
	Spec       descriptors.NodeSpec
	Comment    string // behind the key
	ShadowMode bool
	Limits     []DraftLimit
	Children   []*Draft
}

// A DraftLimit is a limit of a [Draft]. A key with the zero value is left out.
type DraftLimit struct {
	Comment            string // the lines above the limit
	Name, Algorithm    string
	ConcurrentRequests int64
	Unit               string // if empty, RequestsPerUnit is left out too
	UnitMultiplier     int64
	RequestsPerUnit    int64
	Capacity           int64
	WindowStart        string
	CountDenied        *bool
	Parameters         map[string]any // further keys
}

// At returns the descriptor at a path below d, and adds the missing descriptors.
func (d *Draft) At(path []descriptors.NodeSpec) *Draft {
	for _, spec := range path {
		found := slices.IndexFunc(d.Children, func(b *Draft) bool {
			return b.Spec.Entry == spec.Entry && slices.Equal(b.Spec.Values, spec.Values) && slices.Equal(b.Spec.Prefixes, spec.Prefixes)
		})
		if found < 0 {
			d.Children = append(d.Children, &Draft{Spec: spec})
			found = len(d.Children) - 1
		}
		d = d.Children[found]
	}
	return d
}

// YAML returns the rules of a domain whose descriptors are the children of d. onStoreError is its
// on_store_error, or "".
func (d *Draft) YAML(domain, onStoreError string) []byte {
	root := mapping(0, pair{"domain", domain}, pair{"on_store_error", onStoreError}, pair{"descriptors", d.children()})
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		panic(fmt.Sprintf("rules that cannot be written: %v", err)) // unreachable: the nodes are valid
	}
	return b.Bytes()
}

func (d *Draft) children() *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, b := range d.Children {
		list.Content = append(list.Content, b.node())
	}
	return list
}

func (d *Draft) node() *yaml.Node {
	s := &d.Spec
	var cidr []string
	for _, p := range s.Prefixes {
		cidr = append(cidr, p.String())
	}
	limits := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range d.Limits {
		limits.Content = append(limits.Content, d.Limits[i].node())
	}
	var one *yaml.Node
	if len(limits.Content) == 1 {
		one, limits = limits.Content[0], nil
	}
	n := mapping(0, pair{"key", s.Key}, pair{"value", s.Value}, pair{"values", s.Values}, pair{"cidr", cidr},
		pair{"share_threshold", s.ShareThreshold},
		pair{"shadow_mode", d.ShadowMode}, pair{"rate_limit", one}, pair{"rate_limits", limits}, pair{"descriptors", d.children()})
	n.Content[1].LineComment = d.Comment
	return n
}

func (l *DraftLimit) node() *yaml.Node {
	var requests *int64 // 0 is a limit too
	if l.Unit != "" {
		requests = &l.RequestsPerUnit
	}
	multiplier := l.UnitMultiplier
	if multiplier == 1 {
		multiplier = 0
	}
	pairs := []pair{
		{"name", l.Name}, {"algorithm", l.Algorithm}, {"concurrent_requests", l.ConcurrentRequests}, {"unit", l.Unit},
		{"unit_multiplier", multiplier},
		{"requests_per_unit", requests}, {"capacity", l.Capacity}, {"window_start", l.WindowStart}, {"count_denied", l.CountDenied},
	}
	for _, key := range slices.Sorted(maps.Keys(l.Parameters)) {
		pairs = append(pairs, pair{key, l.Parameters[key]})
	}
	n := mapping(yaml.FlowStyle, pairs...)
	n.HeadComment = l.Comment
	return n
}

type pair struct {
	key   string
	value any
}

// mapping returns a mapping without the pairs whose values are zero or an empty list.
func mapping(style yaml.Style, pairs ...pair) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: style}
	for _, p := range pairs {
		if reflect.ValueOf(p.value).IsZero() {
			continue
		}
		key, value := encoded(p.key), p.value
		node, isNode := value.(*yaml.Node)
		switch {
		case !isNode:
			node = encoded(value)
		case node.Kind == yaml.SequenceNode && len(node.Content) == 0:
			continue
		case node.Kind == yaml.MappingNode:
			key.HeadComment, node.HeadComment = node.HeadComment, ""
		}
		n.Content = append(n.Content, key, node)
	}
	return n
}

// LineSeparators are line breaks of YAML 1.1 but not of YAML 1.2: only a text in double quotes
// stays the same in both.
const LineSeparators = "\u0085\u2028\u2029"

// encoded returns a scalar or a list of texts, each on one line. A text with a line break gets its
// quotes here, because the encoder writes a block that does not always keep the text.
func encoded(value any) *yaml.Node {
	switch v := value.(type) {
	case string:
		if strings.ContainsAny(v, "\n\r"+LineSeparators) {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v, Style: yaml.DoubleQuotedStyle}
		}
	case []string:
		list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, text := range v {
			list.Content = append(list.Content, encoded(text))
		}
		return list
	}
	n := &yaml.Node{}
	if err := n.Encode(value); err != nil {
		panic(fmt.Sprintf("%v is not a scalar: %v", value, err)) // unreachable
	}
	return n
}

// Quoted returns a text as YAML on one line, also for use inside of [] and {}. Plain texts have no
// quotes.
func Quoted(text string) string {
	list, _ := yaml.Marshal(encoded([]string{text})) // a text has no error
	return strings.TrimSuffix(strings.TrimPrefix(string(list), "["), "]\n")
}
