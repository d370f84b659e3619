package admin

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/internal/shadow"
)

// A Shadow is the comparison of the candidate rules of SHADOW_CONFIG with the rules in force.
type Shadow struct {
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
	shadow.Denials
}

// ScopeReplica is the Scope of a candidate that counts the requests of one replica.
const ScopeReplica = "replica"

// ShadowRequests counts requests by their outcomes.
type ShadowRequests struct {
	Compared int64 `json:"compared" doc:"Requests that both decided: the sum of the next four."`
	shadow.Counts
}

type shadowInput struct {
	Limits int `query:"limits" minimum:"0" maximum:"1000" default:"100" doc:"How many limits to return at most."`
	Keys   int `query:"keys" minimum:"0" maximum:"1000" default:"20" doc:"How many keys of each kind to return at most."`
}

type shadowOutput struct{ Body Shadow }

func (a *API) shadow(_ context.Context, in *shadowInput) (*shadowOutput, error) {
	if a.options.Shadow == nil {
		return nil, huma.Error404NotFound("this process has no shadow file: set SHADOW_CONFIG to a file of candidate rules")
	}
	return &shadowOutput{a.options.Shadow(in.Limits, in.Keys)}, nil
}
