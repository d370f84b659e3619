package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Limit is a limit that a descriptor is under. Durations are strings such as 1h0m0s.
type Limit struct {
	Algorithm       string         `json:"algorithm" doc:"The algorithm of the limit."`
	RequestsPerUnit int64          `json:"requests_per_unit" doc:"Hits in a window; under concurrency, slots."`
	Unit            string         `json:"unit,omitempty" doc:"The unit of the window; empty under concurrency."`
	UnitMultiplier  uint32         `json:"unit_multiplier,omitempty" doc:"The number of units in a window; absent under concurrency."`
	Window          string         `json:"window" doc:"The length of the window; 0s under concurrency."`
	Name            string         `json:"name" doc:"The name of the limit in the rules, or empty."`
	Source          string         `json:"source" doc:"The file and line of the rule, or the name of its xDS resource. Empty for a limit that came with the request."`
	OverlaySource   string         `json:"overlay_source,omitempty" doc:"The file and line in the overlay that sets keys of the rule."`
	Mode            string         `json:"mode" enum:"enforced,shadow,quota" doc:"Whether the limit can deny the request."`
	Key             string         `json:"key" doc:"The key of the counter, or its hash if KEY_HASH_SECRET is set."`
	KeyHash         string         `json:"key_hash" doc:"The hash of the key, by which logs name the key."`
	Hash            string         `json:"hash" doc:"The hash of the limit, by which receipts name it. Empty for a limit that came with the request."`
	Override        bool           `json:"override,omitempty" doc:"Whether the limit came with the request."`
	CountDenied     bool           `json:"count_denied" doc:"Whether denied hits count as usage."`
	OnStoreError    string         `json:"on_store_error" doc:"The policy for a hit that the store cannot decide."`
	Parameters      map[string]any `json:"parameters" doc:"Further parameters under their keys in rules, such as capacity, penalty, reserve, lease_ttl, window_start and time_zone. Defaults are left out, except capacity and concurrent_requests."`
	State           *State         `json:"state,omitempty" doc:"The state of the key in the store of a running server."`
}

// A State is the state of a key under a limit. Durations are strings such as 1m30s.
type State struct {
	Used       int64  `json:"used" doc:"The usage of the key: hits, or slots held under concurrency."`
	Remaining  int64  `json:"remaining" doc:"The number of hits that still fit."`
	RetryAfter string `json:"retry_after" doc:"The time until one hit fits; 0s if it fits now, never if it cannot fit."`
	ResetAfter string `json:"reset_after" doc:"The time until the key has fully reset."`
	Penalty    string `json:"penalty" doc:"The remaining time of the penalty; 0s without one."`
}

// Rounded returns the state for a reader, with its durations as [RoundUp] returns them.
func (s State) Rounded() State {
	s.RetryAfter, s.ResetAfter, s.Penalty = RoundUp(s.RetryAfter), RoundUp(s.ResetAfter), RoundUp(s.Penalty)
	return s
}

// WaitText returns the text of a wait in a [State]. A negative wait never ends.
func WaitText(wait time.Duration) string {
	if wait < 0 {
		return "never"
	}
	return wait.String()
}

// RoundUp returns the text of a duration with three significant digits, or in whole seconds from
// 100 s. It rounds up, because the hit does not fit before the wait has passed. It returns any
// other text, such as never, unchanged.
func RoundUp(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return text
	}
	step := time.Duration(1)
	for step < time.Second && d >= 1000*step {
		step *= 10
	}
	if rest := d % step; rest > 0 && d <= math.MaxInt64-step {
		d += step - rest
	}
	return d.String()
}

// limit explains limit i of a plan.
func (e *explainer) limit(planned *decide.Plan, i int) Limit {
	l, key := &planned.Limits[i], planned.Key
	spec := l.Spec()
	out := Limit{
		Algorithm: spec.Algorithm, RequestsPerUnit: l.RequestsPerUnit, Window: l.Window().String(), Name: l.Name,
		Mode: "enforced", Key: key, KeyHash: descriptors.KeyHash(e.options.KeyHashSecret, key), Override: planned.HasOverride,
		CountDenied: spec.CountDenied, OnStoreError: e.domain.OnStoreError(l).String(),
		Parameters: parametersOf(l.Limit),
	}
	if len(e.options.KeyHashSecret) > 0 {
		out.Key = out.KeyHash
	}
	if l.Window() > 0 {
		out.Unit, out.UnitMultiplier = l.Unit.String(), l.UnitMultiplier
	}
	switch {
	case planned.ShadowMode || e.options.Decide.ShadowMode:
		out.Mode = "shadow"
	case planned.QuotaMode:
		out.Mode = "quota"
	}
	if planned.HasOverride {
		return out
	}
	out.Source, out.OverlaySource = planned.Rule.Source(), planned.Rule.OverlaySource()
	out.Hash = fmt.Sprintf("%016x", planned.Rule.LimitHash(planned.IndexInRule(i)))
	return out
}

// parametersOf returns the parameters of a limit that differ from the default, and its capacity or
// slots, under their keys in rules. The value of an object is a map.
func parametersOf(limit *limiters.Limit) map[string]any {
	all, spec := map[string]any{}, limit.Spec()
	for _, p := range limiters.Parameters(spec.Algorithm) {
		text := p.Text(spec.Params)
		if p.Key == "capacity" {
			all[p.Key] = limit.Capacity()
		}
		if text == "" || p.Derived || p.Key == "capacity" {
			continue
		}
		var value any = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && p.Type == limiters.Integer {
			value = n
		}
		object, key, inObject := strings.Cut(p.Key, ".")
		if !inObject {
			all[p.Key] = value
			continue
		}
		inner, _ := all[object].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			all[object] = inner
		}
		inner[key] = value
	}
	if limit.IsConcurrency() {
		all["concurrent_requests"] = spec.Max
	}
	return all
}
