// Package api declares the types of the admin API: its requests and responses in JSON, and the
// stream of decisions. Package admin serves them, and package client calls the API. docs/admin.md
// describes each route with an example.
//
// The tags other than json describe a field in /openapi.json. The server rejects requests that
// exceed the bounds in the tags.
package api

import (
	"encoding/json"

	"github.com/weir-rls/weir/pkg/explain"
)

// A Status is the state of a process.
type Status struct {
	Version       string      `json:"version" doc:"The version of Weir."`
	Replica       string      `json:"replica" doc:"The name of this process: its host name."`
	RulesVersion  string      `json:"rules_version" doc:"The version of the rules in force: 16 hexadecimal digits, or empty without rules."`
	Domains       int         `json:"domains" doc:"The number of domains of the rules in force."`
	Rules         int         `json:"rules" doc:"The number of rules in force."`
	Ready         bool        `json:"ready" doc:"Whether the process is ready to decide requests."`
	Store         StoreStatus `json:"store" doc:"The store of the counters."`
	Allowed       float64     `json:"allowed_per_second" doc:"Allowed hits in a second of all rules, over the last 10 s, by this process."`
	Denied        float64     `json:"denied_per_second" doc:"Denied hits in a second of all rules, over the last 10 s, by this process."`
	UptimeSeconds float64     `json:"uptime_seconds" doc:"Seconds since the start."`
	InFlight      int64       `json:"in_flight" doc:"Requests that are being decided."`
	Shed          int64       `json:"shed" doc:"Requests shed since the start because too many were being decided."`
}

// A StoreStatus is the state of the store.
type StoreStatus struct {
	Kind           string  `json:"kind" enum:"memory,redis" doc:"Where the counters are."`
	Mode           string  `json:"mode" enum:"ok,fallback,lost" doc:"ok: the store decides. fallback: the store fails and on_store_error decides every request. lost: the store fails and requests that need it fail."`
	LatencySeconds float64 `json:"latency_seconds" doc:"The mean duration of a call of the store in the last seconds; 0 without calls."`
	CallsPerSecond float64 `json:"calls_per_second" doc:"Calls of the store in the last seconds. Denials from the deny cache need none."`
	Keys           int64   `json:"keys" doc:"Keys in the memory of this process; 0 with Redis while it answers."`
}

// The modes of a store.
const (
	ModeOK       = "ok"
	ModeFallback = "fallback"
	ModeLost     = "lost"
)

// A Rule is a rule in force.
type Rule struct {
	Domain           string      `json:"domain" doc:"The domain of the rule."`
	Path             string      `json:"path" doc:"The path of the rule: its keys, with values where the rule has some, joined by dots. It is the label rule of the metrics."`
	Source           string      `json:"source" doc:"The file and line of the rule, or the name of the xDS resource; empty if unknown."`
	Limits           []RuleLimit `json:"limits" nullable:"false" doc:"The limits of the rule. If one denies a request, the others are not charged. An unlimited rule has none."`
	Unlimited        bool        `json:"unlimited" doc:"The rule allows everything."`
	Mode             string      `json:"mode" enum:"enforced,shadow,quota" doc:"Whether the rule can deny requests."`
	AllowedPerSecond float64     `json:"allowed_per_second" doc:"Allowed hits in a second, over the last 10 s, by this process."`
	DeniedPerSecond  float64     `json:"denied_per_second" doc:"Denied hits in a second, over the last 10 s, by this process."`
}

// A RuleLimit is a limit of a rule.
type RuleLimit struct {
	Name            string `json:"name" doc:"The name of the limit in the rules, or empty."`
	Algorithm       string `json:"algorithm" doc:"The algorithm of the limit."`
	RequestsPerUnit int64  `json:"requests_per_unit" doc:"Hits in a unit; under concurrency, slots."`
	Unit            string `json:"unit" doc:"The unit of the limit; empty if it has no window."`
	UnitMultiplier  uint32 `json:"unit_multiplier" doc:"The number of units in a window."`
	Window          string `json:"window" example:"1h0m0s" doc:"The length of the window; 0s if there is none."`
	Params          string `json:"params" doc:"Further parameters of the algorithm, such as capacity=15."`
}

// An ExplainRequest asks which limits a request is under, and why. It has either descriptors, or a
// request in Envoy's form.
type ExplainRequest struct {
	Domain      string            `json:"domain,omitempty" maxLength:"4096" example:"shop" doc:"The domain; not together with request."`
	Descriptors [][]explain.Entry `json:"descriptors,omitempty" maxItems:"100" example:"[[[\"user_id\",\"42\"]]]" doc:"Lists of entries; not together with request."`
	Request     json.RawMessage   `json:"request,omitempty" doc:"Envoy's RateLimitRequest as JSON, instead of domain and descriptors."`
	Live        bool              `json:"live,omitempty" doc:"Whether each limit has the state of its key. This charges nothing."`
}
