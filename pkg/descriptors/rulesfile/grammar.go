package rulesfile

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/spelling"
)

// A MapSchema is a kind of map in a file, with its keys. docs/rules.schema.json and
// docs/test.schema.json have the same keys.
type MapSchema struct {
	Name string   // in messages, such as "a step"
	Keys []string // in the order of messages

	// lenient makes a misplaced key of envoyproxy/ratelimit a warning, because envoyproxy/ratelimit
	// ignores it in this map.
	lenient bool
}

// ratelimitKeys are the keys of envoyproxy/ratelimit. All other keys are Weir's own.
var ratelimitKeys = []string{
	"domain", "descriptors", "key", "value", "rate_limit", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric",
	"share_threshold", "metadata", "unit", "requests_per_unit", "name", "unlimited", "replaces",
}

func isWeirs(key string) bool { return !slices.Contains(ratelimitKeys, key) }

var (
	fileSchema       = &MapSchema{Name: "the file", Keys: []string{"domain", "descriptors", "on_store_error", "on_deny"}, lenient: true}
	descriptorSchema = &MapSchema{Name: "a descriptor", Keys: []string{
		"key", "value", "values", "cidr", "rate_limit", "descriptors", "rate_limits", "shadow_mode", "quota_mode", "detailed_metric",
		"value_to_metric", "share_threshold", "metadata",
	}, lenient: true}
	rateLimitSchema = &MapSchema{
		Name: "a rate_limit", Keys: slices.Concat(rateKeys, []string{"unlimited", "replaces"}, settingKeys), lenient: true,
	}
	rateLimitsSchema = &MapSchema{Name: "a limit of rate_limits", Keys: slices.Concat(rateKeys, settingKeys)}
	replacesSchema   = &MapSchema{Name: "an item of replaces", Keys: []string{"name"}, lenient: true}

	rateKeys    = []string{"unit", "requests_per_unit", "name", "unit_multiplier", "concurrent_requests"}
	settingKeys = slices.Concat([]string{"algorithm"}, parameterKeys(), []string{"count_denied", "on_store_error", "on_deny"})
)

const anyUint32 = math.MaxUint32

// sections are the sections of a rules file, in the order in which a misplaced key is searched.
var sections = []*MapSchema{descriptorSchema, rateLimitSchema, rateLimitsSchema, replacesSchema, fileSchema}

func (s *MapSchema) has(key string) bool { return slices.Contains(s.Keys, key) }

func (s *MapSchema) String() string { return strings.Join(s.Keys, ", ") }

// checkKey reports whether a key belongs in a map with schema. If not, it records a fault or a
// warning.
func (r *reader) checkKey(key, value *yaml.Node, schema *MapSchema) bool {
	switch {
	case schema == metadataSchema:
		return r.checkMetadataKey(key)
	case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
		r.fault(key, fmt.Sprintf("the key %s is not a text", excerptOf(key)), "want one of "+schema.String())
	case schema.has(key.Value):
		return true
	case schema == rateLimitsSchema && rateLimitSchema.has(key.Value):
		r.fault(key, fmt.Sprintf("'%s' is not allowed inside 'rate_limits'", key.Value), "set it in 'rate_limit'")
	case schema.lenient:
		r.misplaced(key, value, schema)
	default:
		r.unknown(key, schema)
	}
	return false
}

// unknown records a fault for a key that schema does not have.
func (r *reader) unknown(key *yaml.Node, schema *MapSchema) {
	remedy, found := nearestOf(key.Value, schema.Keys, r.synonyms)
	if name, _, joined := strings.Cut(key.Value, ":"); joined && schema.has(name) {
		remedy, found = spaceRemedy, true
	}
	for _, other := range sections {
		if best := spelling.Nearest(key.Value, other.Keys); !found && schema.lenient && best != "" {
			remedy, found = "did you mean '"+best+"'? It belongs in "+other.Name, true
		}
	}
	if !found {
		remedy = "want one of " + schema.String()
	}
	r.fault(key, fmt.Sprintf("unknown key '%s' in %s", excerpt(key.Value), schema.Name), remedy)
}

// misplaced is unknown for a lenient schema: a key of another section may be only a warning.
func (r *reader) misplaced(key, value *yaml.Node, schema *MapSchema) {
	i := slices.IndexFunc(sections, func(other *MapSchema) bool { return other.has(key.Value) })
	if i < 0 {
		r.unknown(key, schema)
		return
	}
	remedy := "move it into " + sections[i].Name
	if isWeirs(key.Value) {
		r.fault(key, fmt.Sprintf("key '%s' does not belong in %s", key.Value, schema.Name), remedy)
		return
	}
	if schema != fileSchema || key.Value != "name" { // which is the name of the resource in an export of rules by xDS
		r.warn(misplacedKey, key, fmt.Sprintf("key '%s' has no effect in %s", key.Value, schema.Name), remedy)
	}
	if key.Value != "metadata" {
		r.checkIgnored(value)
	}
}

// checkIgnored validates the value of a key without effect, because envoyproxy/ratelimit rejects
// some values.
func (r *reader) checkIgnored(n *yaml.Node) {
	n, ok := r.resolve(n)
	if !ok {
		return
	}
	r.depth++
	defer func() { r.depth-- }()
	switch n.Kind {
	case yaml.MappingNode:
		r.checkIgnoredMap(n)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if item, ok = r.visit(item); ok && item.Kind != yaml.MappingNode {
				r.fault(item, fmt.Sprintf("an item of a list is %s, not a map", describe(item)), "write a map after each '- '")
				continue
			}
			r.checkIgnored(item)
		}
	default:
		if n.ShortTag() == "!!float" {
			r.fault(n, fmt.Sprintf("%s is not a whole number", excerptOf(n)), "want a whole number, or quote it")
		}
	}
}

func (r *reader) checkIgnoredMap(n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visitEntry(n, i)
		switch {
		case !ok:
			return
		case key.ShortTag() == "!!merge":
		case key.ShortTag() != "!!str":
			r.fault(key, fmt.Sprintf("the key %s is not a text", excerptOf(key)), "quote it")
			continue
		case key.Value == "metadata":
			continue
		case isWeirs(key.Value):
			r.fault(key, fmt.Sprintf("unknown key '%s'", excerpt(key.Value)), "remove it")
			continue
		}
		r.checkIgnored(n.Content[i+1])
	}
}
