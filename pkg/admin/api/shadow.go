package api

import (
	"time"

	"github.com/weir-rls/weir/pkg/explain"
)

// A ShadowReport is the comparison of the candidate rules of SHADOW_CONFIG with the rules in force.
type ShadowReport struct {
	File             string         `json:"file" doc:"The path of the shadow file."`
	Running          bool           `json:"running" doc:"Whether a candidate decides requests."`
	Error            string         `json:"error" doc:"Why the file could not be loaded; empty if it is loaded. If the file has faults, the candidate before stays."`
	CandidateVersion string         `json:"candidate_version" doc:"The version of the candidate; empty without one."`
	RulesVersion     string         `json:"rules_version" doc:"The version of the rules in force that the counts are about; empty before the first request."`
	Replica          string         `json:"replica" doc:"The name of this process: its host name."`
	Scope            string         `json:"scope" enum:"replica" doc:"replica: the candidate counts the requests of this replica only. With several replicas, it denies too little."`
	Replicas         int            `json:"replicas" doc:"How many replicas share the limits, by REPLICAS or REPLICAS_DNS; 1 if neither is set."`
	LoadedAt         *time.Time     `json:"loaded_at,omitempty" doc:"When the candidate began, with empty counters."`
	Since            *time.Time     `json:"since,omitempty" doc:"The counts are those since then: since the candidate began, or since the rules in force changed."`
	Requests         ShadowRequests `json:"requests" doc:"Requests by their outcomes."`
	DroppedShare     float64        `json:"dropped_share" doc:"The share of the requests that the candidate missed, from 0 to 1. Its counters are too low by them."`
	Evicted          int64          `json:"evicted" doc:"Keys of the candidate evicted too early, and hits without room. Above 0, it denies too little: raise SHADOW_MAX_BYTES."`
	Panics           int64          `json:"panics" doc:"Panics of the candidate since the start. No request fails by one; please report it."`

	Limits           []LimitDiff `json:"limits" nullable:"false" doc:"The limits that denied requests, the most newly denied requests first."`
	LimitsTotal      int         `json:"limits_total" doc:"How many limits denied requests."`
	NewlyDeniedKeys  DiffKeys    `json:"newly_denied_keys" doc:"The keys of the newly denied requests."`
	NewlyAllowedKeys DiffKeys    `json:"newly_allowed_keys" doc:"The keys of the newly allowed requests."`
}

// ScopeReplica is the Scope of a candidate that counts the requests of one replica.
const ScopeReplica = "replica"

// ShadowRequests counts requests by their decisions under the rules in force and under the
// candidate.
type ShadowRequests struct {
	Compared     int64 `json:"compared" doc:"Requests that both decided: the sum of the next four."`
	BothAllowed  int64 `json:"both_allowed" doc:"Requests that both allow."`
	BothDenied   int64 `json:"both_denied" doc:"Requests that both deny."`
	NewlyDenied  int64 `json:"newly_denied" doc:"Requests that only the candidate denies."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"Requests that only the rules in force deny."`
	Undecided    int64 `json:"undecided" doc:"Requests that were not compared, because the store failed, or the candidate had no room."`
	Dropped      int64 `json:"dropped" doc:"Requests since loaded_at that the candidate missed, because its queue was full."`
}

// A LimitDiff is a limit that denied requests.
type LimitDiff struct {
	Domain       string `json:"domain" doc:"The domain of the rule."`
	Rule         string `json:"rule" doc:"The path of the rule; empty for a limit in the request without a rule."`
	Limit        string `json:"limit" doc:"The name of the limit, or its index in the rule."`
	Algorithm    string `json:"algorithm" doc:"The algorithm of the limit; empty if no limit is known."`
	NewlyDenied  int64  `json:"newly_denied" doc:"Requests that only the candidate denies, by this limit."`
	NewlyAllowed int64  `json:"newly_allowed" doc:"Requests that only the rules in force deny, by this limit."`
	BothDenied   int64  `json:"both_denied" doc:"Requests that both deny, the candidate by this limit."`
	Shadowed     int64  `json:"shadowed" doc:"Requests that this limit of the candidate would deny without its shadow mode."`
	Warm         bool   `json:"warm" doc:"False until the candidate has counted for one window of the limit. Until then it denies too little."`
}

// DiffKeys are the keys of newly denied or newly allowed requests.
type DiffKeys struct {
	Keys  int       `json:"keys" doc:"The number of keys."`
	Exact bool      `json:"exact" doc:"False if there are more keys than that."`
	Worst []DiffKey `json:"worst" nullable:"false" doc:"The keys with the most requests, first the most."`
}

// A DiffKey is a key with the number of its requests.
type DiffKey struct {
	Domain   string          `json:"domain" doc:"The domain of the key."`
	Rule     string          `json:"rule" doc:"The path of the rule."`
	Limit    string          `json:"limit" doc:"The limit that denied the first of the requests."`
	Key      []explain.Entry `json:"key" nullable:"false" doc:"The entries of the descriptor; empty if KEY_HASH_SECRET is set."`
	KeyHash  string          `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits."`
	Requests int64           `json:"requests" doc:"The estimated requests: at least the true number."`
	Error    int64           `json:"error" doc:"By how much requests may be too large."`
}
