package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/explain"
)

func TestShadowMatchesItsDocument(t *testing.T) {
	now := time.Now()
	full := api.ShadowReport{
		File: "candidate.yaml", Running: true, CandidateVersion: "0123456789abcdef", RulesVersion: "fedcba9876543210", Replica: "weir-0",
		Scope: api.ScopeReplica, Replicas: 3, LoadedAt: &now, Since: &now, DroppedShare: .25,
		Requests: api.ShadowRequests{Compared: 10, BothAllowed: 4, BothDenied: 3, NewlyDenied: 2, NewlyAllowed: 1},
		Limits:   []api.LimitDiff{{Domain: "shop", Rule: "user_id", Limit: "burst", Algorithm: "fixed_window", NewlyDenied: 2}},
		NewlyDeniedKeys: api.DiffKeys{Keys: 1, Exact: true, Worst: []api.DiffKey{
			{Domain: "shop", Rule: "user_id", Limit: "burst", Key: []explain.Entry{{"user_id", "42"}}, KeyHash: "0123456789abcdef", Requests: 2},
		}},
		NewlyAllowedKeys: api.DiffKeys{Exact: true, Worst: []api.DiffKey{}},
	}
	var bounds [2]int
	answer := full
	f := newFixture(t, func(o *Options) {
		o.Shadow = func(limits, keys int) api.ShadowReport { bounds = [2]int{limits, keys}; return answer }
	})
	var got api.ShadowReport
	if code, text := f.call("GET", "/v1/shadow", "", &got); code != 200 || bounds != [2]int{100, 20} || got.Limits[0] != full.Limits[0] ||
		got.NewlyDeniedKeys.Worst[0].Requests != 2 || !got.Since.Equal(now) {
		t.Errorf("%d %s, bounds %v", code, text, bounds)
	}
	answer = api.ShadowReport{File: "candidate.yaml", Error: "no such file", Scope: api.ScopeReplica, Limits: []api.LimitDiff{},
		NewlyDeniedKeys: api.DiffKeys{Worst: []api.DiffKey{}}, NewlyAllowedKeys: api.DiffKeys{Worst: []api.DiffKey{}}}
	if code, text := f.call("GET", "/v1/shadow?limits=0&keys=7", "", nil); code != 200 || bounds != [2]int{0, 7} || strings.Contains(text, "since") {
		t.Errorf("%d %s, bounds %v", code, text, bounds)
	}
	for _, query := range []string{"limits=1001", "keys=-1", "limit=1"} {
		if code, text := f.call("GET", "/v1/shadow?"+query, "", nil); code != 422 {
			t.Errorf("%s: got status %d with %s, want 422", query, code, text)
		}
	}
	if code, _ := f.callAs("", "GET", "/v1/shadow", "", nil); code != 401 {
		t.Errorf("without a token: %d", code)
	}
	if code, text := newFixture(t, nil).call("GET", "/v1/shadow", "", nil); code != 404 || !strings.Contains(text, "SHADOW_CONFIG") {
		t.Errorf("without a shadow file: %d %s, want 404 and the setting SHADOW_CONFIG", code, text)
	}
}
