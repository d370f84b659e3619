package rulesfile

import (
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A section is a kind of map in a file, with the keys it may have. The parser, its messages and the JSON Schema use these
// tables. envoyproxy/ratelimit accepts its own keys in any map and ignores them there. For such a key in the wrong map
// there is a warning, or a fault in a strict section, which envoyproxy/ratelimit does not have.
type section struct {
	id, name string // in the schema, and in messages
	about    string
	keys     []key
	strict   bool
}

// A key is a key of a section, with its text in the JSON Schema.
type key struct {
	name  string
	value schema
	about string
	new   bool // Weir's own: in the wrong map it is a fault
}

const anyUint32 = math.MaxUint32

var (
	top = &section{"file", "the file", "Rules of Weir: the limits of one domain.", []key{
		{"domain", nonEmptyText, "The domain that Envoy's filter names.", false},
		{"descriptors", listOf("descriptor"), "What is limited; the order matters to wildcards.", false},
		{"on_store_error", words(limiters.OnErrors()...), "As in a rate_limit, for all that say nothing of it.", true},
	}, false}
	inDescriptor = &section{"descriptor", "a descriptor", "An entry to match, its limit, and what may follow it.", []key{
		{"key", nonEmptyText, "The key of an entry; '*' stands for any characters.", false},
		{"value", text, "Its value; '*' stands for any characters. Without it any value matches, each on its own.", false},
		{"rate_limit", refTo("rate_limit"), "The limit of requests whose last entry is this one.", false},
		{"descriptors", listOf("descriptor"), "The entries that may follow.", false},
		{"rate_limits", nonEmptyListOf("limit"), "Several limits at once: none is charged unless all allow.", true},
		{"shadow_mode", boolean, "Count and report what is over the limit, but allow it.", false},
		{"quota_mode", boolean, "Being over denies only if every quota of the request is over.", false},
		{"detailed_metric", boolean, "Metrics by the value of each entry. Mind how many there are.", false},
		{"value_to_metric", boolean, "This entry's value in the names of metrics.", false},
		{"share_threshold", boolean, "One counter for all that the wildcard matches.", false},
		{"metadata", anyMap, "Given to Envoy as dynamic metadata when the request passes.", false},
	}, false}
	inRateLimit = &section{"rate_limit", "a rate_limit", "A limit, or none on purpose.", slices.Concat(rate, []key{
		{"unlimited", boolean, "Always allowed, never counted.", false},
		{"replaces", listOf("replaces"), "Limits that do not count for a request that falls under this one.", false},
	}, policyKeys), false}
	inRateLimits = &section{"limit", "a limit of rate_limits", "One of several.", slices.Concat(rate, policyKeys), true}
	inReplaces   = &section{"replaces", "an item of replaces", "A limit that is replaced.", []key{
		{"name", nonEmptyText, "The name of another limit in the domain.", false},
	}, false}

	rate = []key{
		{"unit", unitText, "The unit of time.", false},
		{"requests_per_unit", wholeNumber(0, anyUint32), "How many per window; 0 denies all.", false},
		{"name", text, "What replaces refers to; Envoy is told it as the name of the limit.", false},
		{"unit_multiplier", wholeNumber(1, anyUint32), "Units per window.", true},
	}
	policyKeys = slices.Concat([]key{
		{"algorithm", words(limiters.Algorithms()...), "fixed_window if absent.", true},
	}, parameterKeys(), []key{
		{"count_denied", strictBoolean, "Whether denied hits count; if absent, true for fixed_window alone.", true},
		{"on_store_error", words(limiters.OnErrors()...), "What becomes of a hit that the store cannot decide: error leaves it to Envoy's " +
			"failure_mode_deny, local decides in this process by its share. If absent, as the file says, or error.", true},
	})
)

// sections are those of a rules file, in the order in which a misplaced key is searched.
var sections = []*section{inDescriptor, inRateLimit, inRateLimits, inReplaces, top}

func (s *section) key(name string) *key {
	for i := range s.keys {
		if s.keys[i].name == name {
			return &s.keys[i]
		}
	}
	return nil
}

// String lists the keys of s.
func (s *section) String() string { return strings.Join(s.names(), ", ") }

func (s *section) names() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	return names
}

// knows reports whether a key belongs in a map of this section. If not, it records a fault or a warning.
func (r *reader) knows(key, value *yaml.Node, in *section) bool {
	switch {
	case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
		r.fault(key, "write one of "+in.String(), "the key %s is not a text", quoted(key))
		return false
	case in.key(key.Value) != nil:
		return true
	case in == inRateLimits && inRateLimit.key(key.Value) != nil:
		r.fault(key, "use a rate_limit for it", "%s is not allowed inside rate_limits", key.Value)
		return false
	case in.strict:
		r.unknown(key, in)
		return false
	}
	r.misplaced(key, value, in)
	return false
}

// unknown reports a key that in does not have.
func (r *reader) unknown(key *yaml.Node, in *section) {
	remedy, found := nearest(key.Value, in.names())
	for _, other := range sections {
		if best := closest(key.Value, other.names()); !found && !in.strict && best != "" {
			remedy, found = "did you mean '"+best+"'? It belongs in "+other.name, true
		}
	}
	if !found {
		remedy = "write one of " + in.String()
	}
	r.fault(key, remedy, "unknown key '%s' in %s", short(key.Value), in.name)
}

func (r *reader) misplaced(key, value *yaml.Node, in *section) {
	for _, other := range sections {
		k := other.key(key.Value)
		switch {
		case k == nil:
			continue
		case k.new:
			r.fault(key, "move it into "+other.name, "key '%s' does not belong in %s", k.name, in.name)
			return
		}
		r.warn(key, "move it into "+other.name, "key '%s' has no effect in %s", k.name, in.name)
		if k.name != "metadata" {
			r.ignored(value, in)
		}
		return
	}
	r.unknown(key, in)
}

// ignored checks the value of a key that has no effect, as far as envoyproxy/ratelimit does.
func (r *reader) ignored(n *yaml.Node, in *section) {
	n, ok := r.visit(n)
	if !ok {
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	switch n.Kind {
	case yaml.MappingNode:
		r.ignoredMap(n, in)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item, ok = r.visit(item); ok && item.Kind != yaml.MappingNode {
				r.fault(item, "write a map after each '- '", "an item of a list is %s, not a map", shape(item))
				continue
			}
			r.ignored(item, in)
		}
	default:
		if n.ShortTag() == "!!float" {
			r.fault(n, "write a whole number, or quote it", "%s is not a whole number", quoted(n))
		}
	}
}

func (r *reader) ignoredMap(n *yaml.Node, in *section) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visit(n.Content[i])
		known := func(s *section) bool { return s.key(key.Value) != nil && !s.key(key.Value).new }
		switch {
		case !ok:
			return
		case key.ShortTag() == "!!merge":
		case key.ShortTag() != "!!str":
			r.fault(key, "quote it", "the key %s is not a text", quoted(key))
			continue
		case key.Value == "metadata":
			continue
		case !slices.ContainsFunc(sections, known):
			r.fault(key, "remove it", "unknown key '%s'", short(key.Value))
			continue
		}
		r.ignored(n.Content[i+1], in)
	}
}
