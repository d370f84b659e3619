package rulesfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

type schemaOfSection struct {
	Properties map[string]map[string]any `json:"properties"`
	Required   []string                  `json:"required"`
}

func schemaSections(t *testing.T) map[string]schemaOfSection {
	t.Helper()
	text := must.Read(t, "../../../docs/rules.schema.json")
	var schema struct {
		Defs map[string]schemaOfSection `json:"$defs"`
	}
	must.Succeed(t, json.Unmarshal(text, &schema))
	return schema.Defs
}

func TestSchemaHasTheKeysOfTheGrammar(t *testing.T) {
	want := map[string]*MapSchema{
		"file": fileSchema, "descriptor": descriptorSchema, "rate_limit": rateLimitSchema, "limit": rateLimitsSchema, "replaces": replacesSchema, "on_deny": onDenySchema,
	}
	maps.Copy(want, objects)
	got := schemaSections(t)
	if len(got) != len(want) {
		t.Errorf("the schema has %d sections, want %d", len(got), len(want))
	}
	for id, section := range want {
		keys := slices.Sorted(maps.Keys(got[id].Properties))
		if !slices.Equal(keys, slices.Sorted(slices.Values(section.Keys))) {
			t.Errorf("%s: the schema has %q, want %q", id, keys, section.Keys)
		}
	}
}

func TestSchemaHasTheValuesOfTheGrammar(t *testing.T) {
	sections := schemaSections(t)
	same := func(key string, got any, want any) {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the schema has %v, want %v", key, got, want)
		}
	}
	numbers := func(key string, property map[string]any, minimum, maximum int64) {
		same(key, property["minimum"], float64(minimum))
		same(key, property["maximum"], float64(maximum))
	}
	same("on_store_error", sections["file"].Properties["on_store_error"]["enum"], limiters.OnStoreErrorNames())
	for _, id := range []string{"rate_limit", "limit"} {
		limit := sections[id].Properties
		same("algorithm", limit["algorithm"]["enum"], limiters.Algorithms())
		same("on_store_error", limit["on_store_error"]["enum"], limiters.OnStoreErrorNames())
		units := limit["unit"]["anyOf"].([]any)
		same("unit", units[0].(map[string]any)["enum"], descriptors.UnitNames())
		anyCase := units[1].(map[string]any)["pattern"].(string)
		for _, unit := range descriptors.UnitNames() {
			if !regexp.MustCompile(anyCase).MatchString(strings.ToUpper(unit)) {
				t.Errorf("unit: the schema has no %s in capitals", unit)
			}
		}
		numbers("unit_multiplier", limit["unit_multiplier"], 1, anyUint32)
		numbers("requests_per_unit", limit["requests_per_unit"], 0, limiters.LargestMax)
		numbers("concurrent_requests", limit["concurrent_requests"], 0, limiters.MaxLeases)
		for _, p := range parameters {
			section, key := id, p.Key
			if object, name, ok := strings.Cut(p.Key, "."); ok {
				section, key = object, name
				same(p.Key+" required", slices.Contains(sections[section].Required, key), p.Required)
			}
			property, help := sections[section].Properties[key], p.About
			if text := cmp.Or(p.Default, p.DefaultText); text != "" {
				help += " Default: " + text + "."
			}
			if p.inObject() {
				help = strings.ToUpper(help[:1]) + help[1:]
			} else {
				help = strings.Join(p.algorithms, ", ") + ": " + help
			}
			same(p.Key, property["description"], help)
			switch p.Type {
			case limiters.Choice:
				same(p.Key, property["enum"], p.Choices)
			case limiters.Integer:
				numbers(p.Key, property, p.Min, p.Max)
			case limiters.Object:
				same(p.Key, property["$ref"], "#/$defs/"+p.Key)
			default:
				same(p.Key, property["type"], "string")
			}
		}
	}
	onDeny := sections["on_deny"].Properties
	same("body", onDeny["body"]["maxLength"], descriptors.MaxDenyBodyBytes)
	same("headers", onDeny["headers"]["maxProperties"], descriptors.MaxDenyHeaders)
	same("a header", onDeny["headers"]["additionalProperties"].(map[string]any)["maxLength"], descriptors.MaxDenyHeaderValueBytes)
}

// docs/rules.md marks the keys that envoyproxy/ratelimit rejects, so that a file can be made ready
// for it.
func TestRulesPageMarksTheKeysOfWeir(t *testing.T) {
	text := must.Read(t, "../../../docs/rules.md")
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*$")
	header := regexp.MustCompile(`(?m)^.*\n\|---`)
	rows := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(header.ReplaceAllString(string(text), ""), -1) {
		rows[m[1]] = append(rows[m[1]], m[0])
	}
	for _, section := range sections {
		for _, key := range section.Keys {
			if len(rows[key]) == 0 {
				t.Errorf("docs/rules.md has no row for %s", key)
			}
			for _, row := range rows[key] {
				if got, want := strings.Contains(row, "†"), isWeirs(key); got != want {
					t.Errorf("†: %v, want %v: %s", got, want, row)
				}
			}
		}
	}
}
