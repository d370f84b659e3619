package admin

import (
	"context"
	"time"
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

type statusOutput struct{ Body Status }

func (a *API) status(context.Context, *struct{}) (*statusOutput, error) {
	s := a.options.Status()
	rules := a.options.Rules()
	s.Version, s.RulesVersion = a.options.Version, rules.Version()
	s.Domains, s.Rules = rules.Counts()
	s.Allowed, s.Denied = a.rates.total(rules, s.Rules)
	s.UptimeSeconds = time.Since(a.started).Seconds()
	s.Store.CallsPerSecond, s.Store.LatencySeconds = a.rates.store()
	return &statusOutput{s}, nil
}
