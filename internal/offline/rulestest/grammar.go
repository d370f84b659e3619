package rulestest

import (
	"slices"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// page describes the grammar.
const page = "docs/test.md"

// reasons are those that a test can expect. Its store never fails.
var reasons = slices.DeleteFunc(decide.ReasonNames(), func(reason string) bool {
	return reason == decide.StorePolicy.String() || reason == decide.StoreError.String()
})

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
	fileSchema    = &rulesfile.MapSchema{Name: "the test file", Keys: []string{"rules", "overlay", "domain", "options", "tests"}}
	optionsSchema = &rulesfile.MapSchema{Name: "options", Keys: []string{ // settings of the server, in lower case
		"shadow_mode", "quota_mode", "stop_cache_key_increment_when_overlimit", "use_calendar_month_rate_limit", "merge_domain_config",
	}}
	testSchema       = &rulesfile.MapSchema{Name: "a test", Keys: []string{"name", "start", "domain", "steps"}}
	stepSchema       = &rulesfile.MapSchema{Name: "a step", Keys: []string{"at", "after", "request", "repeat", "every", "expect"}}
	requestSchema    = &rulesfile.MapSchema{Name: "a request", Keys: []string{"domain", "descriptors", "hits", "is_negative_hits"}}
	descriptorSchema = &rulesfile.MapSchema{Name: "a descriptor", Keys: []string{"entries", "hits", "is_negative_hits", "limit"}}
	limitSchema      = &rulesfile.MapSchema{Name: "a limit", Keys: []string{"requests_per_unit", "unit", "unit_multiplier"}}
	expectSchema     = &rulesfile.MapSchema{Name: "expect", Keys: append([]string{"allowed", "denied", "descriptors"}, decisionSchema.Keys...)}
	decisionSchema   = &rulesfile.MapSchema{Name: "a descriptor of expect", Keys: []string{
		"verdict", "rule", "limit", "reason", "remaining", "used", "retry_after", "reset_after", "penalized",
	}}
)
