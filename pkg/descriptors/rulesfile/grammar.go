package rulesfile

import (
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A section is a kind of map in a file, with its keys. The parser, its messages and the JSON Schema are driven by these tables.
// envoyproxy/ratelimit ignores its own keys in the wrong map. Such a key causes a warning, or a fault in a strict section, which
// envoyproxy/ratelimit does not have.
type section struct {
	id, name string // in the schema, and in messages
	about    string
	keys     []key
	strict   bool
}

// A key is a key of a section, with its JSON Schema.
type key struct {
	name  string
	value schema
	about string
	new   bool // Weir's own, so that it is a fault in the wrong map
}

const anyUint32 = math.MaxUint32

var (
	top = &section{"file", "the file", "The rules of one domain.", []key{
		{"domain", nonEmptyText, "The domain in the configuration of Envoy's filter.", false},
		{"descriptors", listOf("descriptor"), "The descriptors to limit. The order matters only for wildcards.", false},
		{"on_store_error", enum(limiters.OnErrors()...), "The default of on_store_error in every limit of the domain.", true},
		{"on_deny", ref("on_deny"), "The default of on_deny in every limit of the domain.", true},
	}, false}
	inDescriptor = &section{"descriptor", "a descriptor", "An entry to match, its limits, and the descriptors that may follow.", []key{
		{"key", nonEmptyText, "The key of an entry. '*' matches any characters.", false},
		{"value", text, "The value of the entry. '*' matches any characters. Without a value every value matches, each with its own counter.", false},
		{"values", valueList, "Several values. Each has its own counter.", true},
		{"cidr", prefixList, "IP prefixes that contain the value. Each address has its own counter.", true},
		{"rate_limit", refTo("rate_limit"), "The limit of descriptors whose last entry is this one.", false},
		{"descriptors", listOf("descriptor"), "The entries that may follow.", false},
		{"rate_limits", nonEmptyListOf("limit"), "Several limits: a request is charged to all of them, or to none if one denies it.", true},
		{"shadow_mode", boolean, "Count and report requests over the limit, but allow them.", false},
		{"quota_mode", boolean, "Deny a request only if all its quotas are over.", false},
		{"detailed_metric", boolean, "Use the value of every entry in the names of metrics. Each value makes a series.", false},
		{"value_to_metric", boolean, "Use the value of this entry in the names of metrics.", false},
		{"share_threshold", boolean, "One counter for all values that the wildcard or the list matches, or for each prefix of cidr.", false},
		{"metadata", anyMap, "Dynamic metadata that Envoy gets with an allowed request.", false},
	}, false}
	inRateLimit = &section{"rate_limit", "a rate_limit", "A limit, or unlimited.", slices.Concat(rate, []key{
		{"unlimited", boolean, "Allow every request and count none.", false},
		{"replaces", listOf("replaces"), "Names of limits that do not apply to a request under this one.", false},
	}, policyKeys), false}
	inRateLimits = &section{"limit", "a limit of rate_limits", "One of several limits.", slices.Concat(rate, policyKeys), true}
	inReplaces   = &section{"replaces", "an item of replaces", "A limit to replace.", []key{
		{"name", nonEmptyText, "The name of another limit in the domain.", false},
	}, false}

	rate = []key{
		{"unit", unitText, "The unit of time.", false},
		{"requests_per_unit", wholeNumber(0, limiters.MaxPerWindow), "Hits per window. 0 denies every request.", false},
		{"name", text, "The name of the limit, for replaces and for Envoy.", false},
		{"unit_multiplier", wholeNumber(1, anyUint32), "Units per window.", true},
		{"concurrent_requests", wholeNumber(0, limiters.MaxLeases), "concurrency: how many requests may run at a time.", true},
	}
	policyKeys = slices.Concat([]key{
		{"algorithm", enum(limiters.Algorithms()...), "The algorithm. Default: fixed_window.", true},
	}, parameterKeys(), []key{
		{"count_denied", strictBoolean, "Whether denied hits count. Default: true for fixed_window, else false.", true},
		{"on_store_error", enum(limiters.OnErrors()...), "The answer when the store fails: error leaves it to Envoy's failure_mode_deny, " +
			"local decides with this replica's share. Default: that of the file, or error.", true},
		{"on_deny", ref("on_deny"), "The response to a request that the limit denies. Default: that of the file, or Envoy's own.", true},
	})
)

// sections are the sections of a rules file, in the order in which a misplaced key is searched.
var sections = []*section{inDescriptor, inRateLimit, inRateLimits, inReplaces, top}

func (s *section) key(name string) *key {
	for i := range s.keys {
		if s.keys[i].name == name {
			return &s.keys[i]
		}
	}
	return nil
}

func (s *section) String() string { return strings.Join(s.names(), ", ") }

func (s *section) names() []string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	return names
}

// knows reports whether a key belongs in a map of section in. If not, it records a fault or a warning.
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

// unknown records a fault or a warning for a key that is not in a section.
func (r *reader) unknown(key *yaml.Node, in *section) {
	remedy, found := nearestOf(key.Value, in.names(), r.synonyms)
	if name, _, joined := strings.Cut(key.Value, ":"); joined && in.key(name) != nil {
		remedy, found = spaceRemedy, true
	}
	for _, other := range sections {
		if best := spelling.Nearest(key.Value, other.names()); !found && !in.strict && best != "" {
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
		if in != top || k.name != "name" { // which is the name of the resource in an export of rules by xDS
			r.warn(misplacedKey, key, "move it into "+other.name, "key '%s' has no effect in %s", k.name, in.name)
		}
		if k.name != "metadata" {
			r.ignored(value, in)
		}
		return
	}
	r.unknown(key, in)
}

// ignored validates the value of a key without effect, because envoyproxy/ratelimit rejects some values.
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
