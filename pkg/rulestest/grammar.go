package rulestest

import (
	"encoding/json"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
)

// page describes the grammar.
const page = "docs/test.md"

type schema = map[string]any

func oneOf(s ...schema) schema { return schema{"anyOf": s} }

func ref(id string) schema { return schema{"$ref": "#/$defs/" + id} }

func listOf(item schema) schema { return schema{"type": "array", "items": item, "minItems": 1} }

func whole(minimum, maximum int64) schema {
	return schema{"type": "integer", "minimum": minimum, "maximum": maximum}
}

var (
	text     = schema{"type": "string", "minLength": 1}
	scalar   = schema{"type": []string{"string", "integer", "boolean"}}
	boolean  = schema{"type": "boolean"}
	duration = schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h)|0)+$`}
	instant  = schema{"type": "string", "pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$`}
	paths    = oneOf(text, listOf(text))
	hits     = whole(0, limiters.MaxHits)
	verdict  = schema{"enum": []string{"allowed", "denied"}}
	// pairs are the entries of one descriptor.
	pairs = schema{"type": "string"}
)

// reasons are those of package decide that a test can expect. Its store never fails.
var reasons = []string{"no_entries", "unknown_domain", "no_rule", "unlimited", "replaced", "within_limit", "over_limit", "never_fits", "too_many_leases", "bad_lease_id",
	"released", "settled"}

// synonyms maps words to the keys of this grammar.
var synonyms = map[string]string{
	"all_or_nothing":  "write 'stop_cache_key_increment_when_overlimit', as the setting",
	"calendar_months": "write 'use_calendar_month_rate_limit', as the setting",
	"merge":           "write 'merge_domain_config', as the setting",
	"config":          "write 'rules'",
	"descriptor":      "write 'request'",
	"wait":            "write 'after'",
	"sleep":           "write 'after'",
	"in":              "write 'after'",
	"time":            "write 'at'",
	"times":           "write 'repeat'",
	"count":           "write 'repeat'",
	"interval":        "write 'every'",
	"expected":        "write 'expect'",
	"want":            "write 'expect'",
	"result":          "write 'verdict'",
	"cost":            "write 'hits'",
	"hits_addend":     "write 'hits'",
	"cases":           "write 'tests'",
	"descriptors":     "these are rules: weir check checks them, and weir test --init writes a first test file",
}

var (
	inFile = &rulesfile.Section{Name: "the test file", About: "Tests of rules.", Keys: []rulesfile.Key{
		{Name: "rules", Schema: paths, About: "The files and folders of rules, relative to this file."},
		{Name: "overlay", Schema: paths, About: "The files and folders of the overlay, relative to this file."},
		{Name: "domain", Schema: scalar, About: "The domain of requests that set none. Default: that of the rules, if they have only one."},
		{Name: "options", Schema: ref("options"), About: "Settings of the server."},
		{Name: "tests", Schema: listOf(ref("test")), About: "The tests. Each has counters of its own."},
	}}
	inOptions = &rulesfile.Section{Name: "options", About: "Settings of the server, in lower case.", Keys: []rulesfile.Key{
		{Name: "shadow_mode", Schema: boolean, About: "SHADOW_MODE: deny nothing."},
		{Name: "quota_mode", Schema: boolean, About: "QUOTA_MODE: deny a request only if all of its descriptors are over their limits."},
		{Name: "stop_cache_key_increment_when_overlimit", Schema: boolean,
			About: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: charge no limit of a request that one of its limits denies."},
		{Name: "use_calendar_month_rate_limit", Schema: boolean, About: "USE_CALENDAR_MONTH_RATE_LIMIT: the unit month is a calendar month in UTC."},
		{Name: "merge_domain_config", Schema: boolean, About: "MERGE_DOMAIN_CONFIG: several files may have the same domain."},
	}}
	inTest = &rulesfile.Section{Name: "a test", About: "A sequence of requests, on counters of its own.", Keys: []rulesfile.Key{
		{Name: "name", Schema: scalar, About: "The name, which no other test of the file has."},
		{Name: "start", Schema: instant, About: "The time at which the test starts. Default: 2024-01-01T00:00:00Z, a Monday."},
		{Name: "domain", Schema: scalar, About: "The domain of the requests of this test that set none."},
		{Name: "steps", Schema: listOf(ref("step")), About: "The requests, in the order of their times."},
	}}
	inStep = &rulesfile.Section{Name: "a step", About: "One request, or the same request several times.", Keys: []rulesfile.Key{
		{Name: "at", Schema: oneOf(duration, instant), About: "The time of the request: from the start of the test, or a date and time."},
		{Name: "after", Schema: duration, About: "The time of the request, from the last request of the step before. Default: 0s."},
		{Name: "request", Schema: oneOf(pairs, listOf(ref("descriptor")), ref("request")), About: "A descriptor as key=value,key=value, a list of descriptors, or a map."},
		{Name: "repeat", Schema: whole(1, MaxRepeat), About: "How often the request is sent. {n} in a value is the number of the request, from 1."},
		{Name: "every", Schema: duration, About: "The time between two requests of the step. Default: 0s."},
		{Name: "expect", Schema: oneOf(verdict, ref("expect")), About: "What each request must get."},
	}}
	inRequest = &rulesfile.Section{Name: "a request", About: "A request.", Keys: []rulesfile.Key{
		{Name: "domain", Schema: scalar, About: "The domain."},
		{Name: "descriptors", Schema: oneOf(pairs, listOf(ref("descriptor"))), About: "A descriptor, or a list of descriptors."},
		{Name: "hits", Schema: hits, About: "The hits of each descriptor that sets none. 0 checks without charging. Default: 1."},
		{Name: "is_negative_hits", Schema: boolean, About: "The hits are refunded, or end a lease."},
	}}
	inDescriptor = &rulesfile.Section{Name: "a descriptor", About: "A descriptor with hits or a limit of its own.", Keys: []rulesfile.Key{
		{Name: "entries", Schema: pairs, About: "The entries, as key=value,key=value."},
		{Name: "hits", Schema: hits, About: "The hits. Default: those of the request."},
		{Name: "is_negative_hits", Schema: boolean, About: "The hits are refunded, or end a lease."},
		{Name: "limit", Schema: ref("limit"), About: "A limit that the request sets for itself."},
	}}
	inLimit = &rulesfile.Section{Name: "a limit", About: "A limit that replaces that of the rule.", Keys: []rulesfile.Key{
		{Name: "requests_per_unit", Schema: whole(0, 1<<32-1), About: "Hits per window."},
		{Name: "unit", Schema: schema{"enum": descriptors.UnitNames()}, About: "The unit of time."},
		{Name: "unit_multiplier", Schema: whole(1, 1<<32-1), About: "Units per window. Default: 1."},
	}}
	inExpect = &rulesfile.Section{Name: "expect", About: "What each request of a step must get.", Keys: append([]rulesfile.Key{
		{Name: "allowed", Schema: whole(0, MaxRepeat), About: "How many requests of the step are allowed, instead of a verdict for all."},
		{Name: "denied", Schema: whole(0, MaxRepeat), About: "How many requests of the step are denied."},
		{Name: "descriptors", Schema: listOf(oneOf(verdict, ref("decision"))), About: "What each descriptor must get, in the order of the request."},
	}, decisionKeys...)}
	inDecision = &rulesfile.Section{Name: "a descriptor of expect", About: "What one descriptor must get.", Keys: decisionKeys}

	decisionKeys = []rulesfile.Key{
		{Name: "verdict", Schema: verdict, About: "allowed or denied."},
		{Name: "rule", Schema: scalar, About: "The path of the rule, such as user_id.action=login."},
		{Name: "limit", Schema: scalar, About: "The name of the limit that decided, or its number within the rule, from 0."},
		{Name: "reason", Schema: schema{"enum": reasons}, About: "Why: over_limit, never_fits, unlimited, no_rule and others."},
		{Name: "remaining", Schema: whole(0, limiters.MaxHits), About: "The hits that still fit, after the last request of the step."},
		{Name: "used", Schema: whole(0, limiters.MaxHits), About: "The usage of the key, after the last request of the step."},
		{Name: "retry_after", Schema: oneOf(duration, schema{"const": "never"}), About: "When the last request of the step would fit."},
		{Name: "reset_after", Schema: duration, About: "When the key has fully reset, after the last request of the step."},
		{Name: "penalized", Schema: boolean, About: "Whether the key is in a penalty."},
	}
)

// Schema returns the JSON Schema (draft 2020-12) of test files, for editors.
func Schema() []byte {
	defs := schema{}
	for id, s := range map[string]*rulesfile.Section{
		"options": inOptions, "test": inTest, "step": inStep, "request": inRequest, "limit": inLimit, "expect": inExpect, "decision": inDecision,
	} {
		defs[id] = s.Schema()
	}
	defs["descriptor"] = oneOf(pairs, inDescriptor.Schema())
	for id, required := range map[string][]string{
		"test": {"name", "steps"}, "step": {"request", "expect"}, "request": {"descriptors"}, "limit": {"requests_per_unit", "unit"},
	} {
		defs[id].(schema)["required"] = required
	}
	file := inFile.Schema()
	file["required"] = []string{"rules", "tests"}
	file["$schema"], file["title"], file["$defs"] = "https://json-schema.org/draft/2020-12/schema", "Tests of Weir rules", defs
	out, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		panic(err) // unreachable: the tables are constant
	}
	return append(out, '\n')
}
