package rulestest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

type schemaOfSection struct {
	Properties map[string]struct {
		Type, Enum       any
		Minimum, Maximum int64
	} `json:"properties"`
	AnyOf []schemaOfSection `json:"anyOf"` // a descriptor is a text or a map
}

func schemaSections(t *testing.T) map[string]schemaOfSection {
	t.Helper()
	text := must.Read(t, "../../../docs/test.schema.json")
	var schema struct {
		schemaOfSection
		Defs map[string]schemaOfSection `json:"$defs"`
	}
	must.Succeed(t, json.Unmarshal(text, &schema))
	sections := schema.Defs
	sections["file"], sections["descriptor"] = schema.schemaOfSection, sections["descriptor"].AnyOf[1]
	return sections
}

func TestSchemaHasTheKeysOfTests(t *testing.T) {
	got := schemaSections(t)
	want := map[string]*rulesfile.MapSchema{
		"file": fileSchema, "options": optionsSchema, "test": testSchema, "step": stepSchema, "request": requestSchema, "descriptor": descriptorSchema,
		"limit": limitSchema, "expect": expectSchema, "decision": decisionSchema,
	}
	if len(got) != len(want) {
		t.Errorf("the schema has %d sections, want %d", len(got), len(want))
	}
	for id, s := range want {
		keys := slices.Sorted(maps.Keys(got[id].Properties))
		if !slices.Equal(keys, slices.Sorted(slices.Values(s.Keys))) {
			t.Errorf("%s: the schema has %q, want %q", id, keys, s.Keys)
		}
	}
}

func TestSchemaHasTheChoicesOfTheGrammar(t *testing.T) {
	sections, verdicts := schemaSections(t), []string{"allowed", "denied"}
	for _, c := range []struct {
		section, key string
		want         []string
	}{
		{"limit", "unit", descriptors.UnitNames()},
		{"expect", "verdict", verdicts},
		{"expect", "reason", reasons},
		{"decision", "verdict", verdicts},
		{"decision", "reason", reasons},
	} {
		if got := sections[c.section].Properties[c.key].Enum; fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s of %s: the schema has %v, want %v", c.key, c.section, got, c.want)
		}
	}
}

// The parser names its bounds in the remedy for a number that is not whole.
func TestSchemaHasTheBoundsOfTheParser(t *testing.T) {
	keys := 0
	for section, step := range map[string]string{
		"step":       "{request: a=b, expect: allowed, %s: 1.5}",
		"request":    "{request: {descriptors: a=b, %s: 1.5}, expect: allowed}",
		"descriptor": "{request: [{entries: a=b, %s: 1.5}], expect: allowed}",
		"limit":      "{request: [{entries: a=b, limit: {%s: 1.5}}], expect: allowed}",
		"expect":     "{request: a=b, expect: {%s: 1.5}}",
		"decision":   "{request: a=b, expect: {descriptors: [{%s: 1.5}]}}",
	} {
		for key, property := range schemaSections(t)[section].Properties {
			if property.Type != "integer" {
				continue
			}
			keys++
			text := fmt.Sprintf("rules: rules.yaml\ntests: [{name: a, steps: ["+step+"]}]\n", key)
			err := fmt.Sprintln(parse(rulesfile.File{Data: []byte(text)}).Err())
			want := fmt.Sprintf("want a whole number from %d to %d\n", property.Minimum, property.Maximum)
			if !strings.Contains(err, want) {
				t.Errorf("%s of %s: the schema has the bounds %d and %d, and the parser says %s", key, section, property.Minimum, property.Maximum, err)
			}
		}
	}
	if keys != 11 {
		t.Errorf("%d keys of the schema are integers, want 11", keys)
	}
}
