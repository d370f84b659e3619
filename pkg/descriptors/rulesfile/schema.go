package rulesfile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A schema is the JSON Schema of a value.
type schema map[string]any

var (
	nonEmptyText = schema{"type": []string{"string", "integer", "boolean"}, "minLength": 1}
	// YAML parses 123 and true as other types, which rules accept as text.
	text = schema{"type": []string{"string", "integer", "boolean", "null"}}
	// YAML 1.1, which envoyproxy/ratelimit reads, has more spellings of booleans.
	boolean       = schema{"anyOf": []schema{{"type": []string{"boolean", "null"}}, enum("yes", "no", "on", "off")}}
	strictBoolean = schema{"type": "boolean"}
	valueList     = scalarList(schema{"type": []string{"string", "integer", "boolean"}, "minLength": 1, "pattern": `^[^*]*$`})
	prefixList    = scalarList(schema{"type": "string", "pattern": `^[0-9a-fA-F:.]+/[0-9]{1,3}$`})
	anyMap        = schema{"type": []string{"object", "null"}}
	unitText      = schema{"anyOf": []schema{{"enum": descriptors.UnitNames()}, {"type": "string", "pattern": anyCase(descriptors.UnitNames())}}}
)

func enum(w ...string) schema { return schema{"enum": w} }

// duration is the syntax of [time.ParseDuration].
var duration = schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}

// zoneText is any text, because there are too many time zones to enumerate.
var zoneText = schema{"type": "string", "minLength": 1}

func wholeNumber(minimum, maximum int64) schema {
	return schema{"type": "integer", "minimum": minimum, "maximum": maximum}
}

func scalarList(item schema) schema {
	return schema{"type": "array", "items": item, "minItems": 1, "uniqueItems": true}
}

func refTo(section string) schema { return schema{"anyOf": []schema{ref(section), {"type": "null"}}} }

func listOf(section string) schema {
	return schema{"type": []string{"array", "null"}, "items": ref(section)}
}

func nonEmptyListOf(section string) schema {
	return schema{"type": "array", "items": ref(section), "minItems": 1}
}

func ref(section string) schema { return schema{"$ref": "#/$defs/" + section} }

// anyCase returns a pattern that matches words in any case. JSON Schema has no flag for it.
func anyCase(words []string) string {
	patterns := make([]string, len(words))
	for i, w := range words {
		for _, c := range w {
			patterns[i] += fmt.Sprintf("[%c%c]", c, c-'a'+'A')
		}
	}
	return "^(" + strings.Join(patterns, "|") + ")$"
}

// Schema returns the JSON Schema (draft 2020-12) of rules, for editors. It is stricter than [Parse] about keys without effect, and
// does not detect duplicates and unknown names.
func Schema() []byte {
	defs := schema{}
	for _, s := range sections {
		defs[s.id] = s.schema()
	}
	for id, s := range objects {
		defs[id] = s.schema()
	}
	defs[inOnDeny.id] = inOnDeny.schema()
	defs[inOnDeny.id].(schema)["allOf"] = []schema{notWithProblem("body"), notWithProblem("content_type"),
		{"if": schema{"required": []string{"content_type"}}, "then": schema{"required": []string{"body"}}}}
	for _, p := range parameters {
		if object, name, ok := strings.Cut(p.Key, "."); ok && p.Required {
			required, _ := defs[object].(schema)["required"].([]string)
			require(defs, object, append(required, name)...)
		}
	}
	require(defs, "file", "domain")
	require(defs, "descriptor", "key")
	require(defs, "replaces", "name")
	defs["descriptor"].(schema)["allOf"] = []schema{
		notBoth("rate_limit", "rate_limits"), notBoth("value", "values"), notBoth("value", "cidr"), notBoth("values", "cidr"),
	}
	isUnlimited := schema{"properties": schema{"unlimited": schema{"enum": []any{true, "yes", "on"}}},
		"required": []string{"unlimited"}}
	nothing := schema{"unit": false}
	for _, k := range policyKeys {
		nothing[k.name] = false
	}
	nothing["unit_multiplier"], nothing["concurrent_requests"] = false, false
	for _, id := range []string{"rate_limit", "limit"} {
		defs[id].(schema)["allOf"] = meaning()
	}
	limit := defs["rate_limit"].(schema)
	limit["if"], limit["then"] = isUnlimited, schema{"properties": nothing}
	limit["else"] = rateOrSlots()
	defs["limit"].(schema)["allOf"] = append(meaning(), rateOrSlots())

	out, err := json.MarshalIndent(schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Weir rules",
		"$ref":    "#/$defs/file",
		"$defs":   defs,
	}, "", "  ")
	if err != nil {
		panic(err) // unreachable: the tables are constant
	}
	return append(out, '\n')
}

// rateOrSlots requires slots for concurrency, and a unit for other algorithms.
func rateOrSlots() schema {
	return schema{
		"if": schema{"properties": schema{"algorithm": schema{"const": concurrency}}, "required": []string{"algorithm"}},
		"then": schema{
			"properties": schema{"unit": false, "unit_multiplier": false, "requests_per_unit": false},
			"required":   []string{"concurrent_requests"},
		},
		"else": schema{"properties": schema{"concurrent_requests": false}, "required": []string{"unit"}},
	}
}

func notBoth(a, b string) schema { return schema{"not": schema{"required": []string{a, b}}} }

func require(defs schema, section string, keys ...string) {
	defs[section].(schema)["required"] = keys
}

func (s *section) schema() schema {
	properties := schema{}
	for _, k := range s.keys {
		property := schema{"description": k.about}
		for word, v := range k.value {
			property[word] = v
		}
		properties[k.name] = property
	}
	return schema{"type": "object", "description": s.about, "properties": properties, "additionalProperties": false}
}

// meaning restricts each parameter to the algorithms that have it.
func meaning() []schema {
	var all []schema
	for _, p := range parameters {
		if p.inObject() {
			continue
		}
		algorithm := schema{"enum": p.algorithms}
		if len(p.algorithms) == 1 {
			algorithm = schema{"const": p.algorithms[0]}
		}
		then := schema{"properties": schema{"algorithm": algorithm}}
		if !slices.Contains(p.algorithms, limiters.DefaultAlgorithm) {
			then["required"] = []string{"algorithm"}
		}
		all = append(all, schema{"if": schema{"required": []string{p.Key}}, "then": then})
	}
	return all
}
