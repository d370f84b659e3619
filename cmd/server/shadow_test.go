package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/explain"
)

// shadowed returns the diff of a server once done accepts it.
func (s *server) shadowed(done func(*api.ShadowReport) bool) *api.ShadowReport {
	s.t.Helper()
	var got api.ShadowReport
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the last diff: %+v", got)
		}
	}()
	must.Until(s.t, "the diff", func() bool {
		got = api.ShadowReport{}
		code, text := s.admin("GET", "/v1/shadow", adminToken, "")
		if code != 200 || json.Unmarshal([]byte(text), &got) != nil {
			s.t.Fatal(code, text)
		}
		return done(&got)
	})
	return &got
}

// The candidate denies no request, and its diff is in the API and the metrics. Its file may be
// broken, mended and removed: requests and readiness never depend on it.
func TestShadowFileIsComparedAndNeverDenies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	live, candidate := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "candidate.yaml")
	write(t, live, rules)
	write(t, candidate, strings.Replace(rules, "unit: year", "unit: no_such_unit", 1))
	s := startServer(t, "CONFIG_PATH="+live, "SHADOW_CONFIG="+candidate, "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	s.log.await(t, 0, "shadow file not loaded")
	if got := s.shadowed(func(got *api.ShadowReport) bool { return true }); got.Running || !strings.Contains(got.Error, "no_such_unit") || got.File != candidate {
		t.Errorf("%+v, want the fault in the candidate, which does not run", got)
	}
	write(t, candidate, strings.Replace(rules, "requests_per_unit: 2", "requests_per_unit: 1", 1))
	s.shadowed(func(got *api.ShadowReport) bool { return got.Running && got.Error == "" })
	for range 3 {
		s.remaining("alice")
	}
	got := s.shadowed(func(got *api.ShadowReport) bool { return got.Requests.Compared == 3 })
	want := api.ShadowRequests{Compared: 3, BothAllowed: 1, NewlyDenied: 1, BothDenied: 1}
	if got.Requests != want || len(got.Limits) != 1 || got.Limits[0].NewlyDenied != 1 || got.Limits[0].BothDenied != 1 || got.Scope != "replica" {
		t.Errorf("%+v, want %+v, of one limit of this replica", got, want)
	}
	if keys := got.NewlyDeniedKeys; keys.Keys != 1 || !keys.Exact || keys.Worst[0].Key[0] != (explain.Entry{"user_id", "alice"}) || keys.Worst[0].Requests != 1 {
		t.Errorf("%+v, want exactly one key, user_id=alice, with 1 request", keys)
	}
	_, metrics := s.get("/metrics")
	for _, line := range []string{
		`weir_shadow_requests_total{outcome="newly_denied"} 1`, `weir_shadow_running 1`, `weir_shadow_loads_total{result="error"} 1`,
		`weir_shadow_denials_total{domain="ugc",limit="0",outcome="denied",rule="user_id"} 1`, `weir_shadow_dropped_requests_total 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %s in the metrics", line)
		}
	}
	// A broken change leaves the candidate.
	write(t, candidate, "domain: [")
	got = s.shadowed(func(got *api.ShadowReport) bool { return got.Error != "" })
	if !got.Running || got.Requests != want {
		t.Errorf("%+v, want the old candidate, with its counts", got)
	}
	// Undoing the fault is logged, so that the last line about the file is not the fault.
	_, from := s.log.await(t, 0, "shadow file not loaded")
	_, from = s.log.await(t, from, "shadow file not loaded")
	write(t, candidate, strings.Replace(rules, "requests_per_unit: 2", "requests_per_unit: 1", 1))
	got = s.shadowed(func(got *api.ShadowReport) bool { return got.Error == "" })
	if got.Requests != want {
		t.Errorf("%+v after the fault was undone, want the old candidate, with its counts", got)
	}
	s.log.await(t, from, "shadow file loaded")
	// Without its file there is no candidate.
	must.Succeed(t, os.Remove(candidate))
	got = s.shadowed(func(got *api.ShadowReport) bool { return !got.Running })
	if got.Error == "" || got.Requests != (api.ShadowRequests{}) {
		t.Errorf("%+v, want an error and no counts", got)
	}
	s.remaining("bob")
	if code, _ := s.get("/healthcheck"); code != 200 {
		t.Errorf("not ready: %d, want 200", code)
	}
}

// The overlay sets keys of the candidate too, because it would if the candidate came into force.
func TestOverlayAppliesToShadowFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	live, candidate, overlay := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "candidate.yaml"), filepath.Join(dir, "overlay.yaml")
	write(t, live, rules)
	write(t, candidate, rules)
	write(t, overlay, "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {algorithm: sliding_log}}]\n")
	s := startServer(t, "CONFIG_PATH="+live, "SHADOW_CONFIG="+candidate, "CONFIG_OVERLAY="+overlay, "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	for range 3 {
		s.remaining("alice")
	}
	before := s.shadowed(func(got *api.ShadowReport) bool { return got.Requests.Compared == 3 })
	if before.Limits[0].Algorithm != "sliding_log" || before.CandidateVersion != before.RulesVersion {
		t.Errorf("%+v, want the algorithm of the overlay in both", before)
	}
	write(t, overlay, "domain: ugc\ndescriptors: [{key: user_id, rate_limit: {algorithm: funnel}}]\n")
	s.shadowed(func(got *api.ShadowReport) bool { return got.CandidateVersion != before.CandidateVersion })
}

func TestServerWithoutShadowFileHasNoDiff(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN_FILE="+tokenFile(t))
	if code, text := s.admin("GET", "/v1/shadow", adminToken, ""); code != 404 || !strings.Contains(text, "SHADOW_CONFIG") {
		t.Error(code, text)
	}
	if _, metrics := s.get("/metrics"); strings.Contains(metrics, "weir_shadow_") {
		t.Error("metrics of a shadow file without one")
	}
}

// The example of docs/shadow.md answers what the page shows.
func TestShadowPageExampleWorks(t *testing.T) {
	t.Parallel()
	page := must.Read(t, "../../docs/shadow.md")
	blocks := map[string]string{}
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		blocks[b[1]] = b[2]
	}
	folder := t.TempDir()
	for _, name := range []string{"rules.yaml", "candidate.yaml"} {
		write(t, filepath.Join(folder, name), blocks[name])
	}
	write(t, filepath.Join(folder, "token"), adminToken+"\n")
	s := startServer(t, "CONFIG_PATH="+filepath.Join(folder, "rules.yaml"), "SHADOW_CONFIG="+filepath.Join(folder, "candidate.yaml"),
		"ADMIN_ADDR=127.0.0.1:0", "ADMIN_TOKEN_FILE="+filepath.Join(folder, "token"))
	for range 7 {
		fetch(t, "POST", "http://"+s.httpAddr+"/json", `{"domain":"shop","descriptors":[{"entries":[{"key":"user_id","value":"42"}]}]}`)
	}
	s.shadowed(func(got *api.ShadowReport) bool { return got.Requests.Compared == 7 })
	var want, got any
	if err := json.Unmarshal([]byte(blocks["answer"]), &want); err != nil {
		t.Fatalf("the answer on the page is no JSON: %v: %s", err, blocks["answer"])
	}
	out := script(t, folder, "call", blocks["call"], s.address("admin"))
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("the answer of the server is no JSON: %v: %s", err, out)
	}
	if difference := missing("", want, got); difference != "" {
		t.Errorf("the page shows %s\nthe server answers %s\n%s", blocks["answer"], out, difference)
	}
}
