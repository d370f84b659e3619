package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

func TestRulesReloadOnFileChange(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := startServer(t, "CONFIG_PATH="+path)
	_, seen := s.log.await(t, 0, "rules loaded")
	if got := s.remaining("alice"); got != 2 {
		t.Fatalf("%d left, want 2", got)
	}

	write(t, path, strings.Replace(rules, "requests_per_unit: 2", "requests_per_unit: 5", 1))
	_, seen = s.log.await(t, seen, "rules loaded")
	if got := s.remaining("alice"); got != 4 {
		t.Errorf("after the limit was raised from 2 to 5: %d left, want 4, for the count stays", got)
	}

	write(t, path, "domain: ugc\nlimits: []\n")
	line, seen := s.log.await(t, seen, "rules not loaded")
	if want := fmt.Sprintf(`{"file":%q,"line":2,"column":1,"message":`, path); !strings.Contains(line, want) {
		t.Errorf("the log line lacks %s: %s", want, line)
	}
	if got := s.remaining("alice"); got != 3 {
		t.Errorf("after a bad file: %d left, want 3 by the old rules", got)
	}

	must.Succeed(t, os.Remove(path))
	_, seen = s.log.await(t, seen, "no such file")
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("after the file vanished: %d left, want 2 by the old rules", got)
	}
	if _, metrics := s.get("/metrics"); !strings.Contains(metrics, `weir_rules_loads_total{result="error"} 2`) {
		t.Error("/metrics does not count the two failures")
	}
	const lastLoad = "weir_rules_last_load_successful"
	if got := s.metric(lastLoad); got != "0" {
		t.Errorf("%s is %s after a failure, want 0", lastLoad, got)
	}

	write(t, path, strings.Replace(rules, "user_id", "tenant", 1))
	_, _ = s.log.await(t, seen, "rules loaded")
	if got := s.metric(lastLoad); got != "1" {
		t.Errorf("%s is %s after a load, want 1", lastLoad, got)
	}
	if r, err := s.call("alice"); err != nil || r.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("after the rule went: %v, %v", r, err)
	}
	if _, metrics := s.get("/metrics"); strings.Contains(metrics, `rule="user_id"`) {
		t.Error("/metrics keeps the series of a removed rule")
	}
	must.Succeed(t, s.cmd.Process.Signal(syscall.SIGHUP))
	if got, _ := s.get("/healthcheck"); got != 200 {
		t.Error("SIGHUP stopped the server")
	}
}

func TestReloadLogsChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := startServer(t, "CONFIG_PATH="+path)
	_, seen := s.log.await(t, 0, "rules loaded")
	hangup := func() {
		t.Helper()
		must.Succeed(t, s.cmd.Process.Signal(syscall.SIGHUP))
	}
	s.awaitHealthy()
	hangup()
	line, seen := s.log.await(t, seen, "rules unchanged")
	if !strings.Contains(line, `"domains":1,"rules":1`) {
		t.Error(line)
	}
	write(t, path, strings.Replace(rules, "requests_per_unit: 2", "requests_per_unit: 5", 1)+
		"  - {key: tenant, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	hangup()
	line, seen = s.log.await(t, seen, "rules loaded")
	if !strings.Contains(line, `"rules_changed":true,"domains_added":0,"domains_removed":0,"rules_added":1,"rules_removed":0,"rules_modified":1`) {
		t.Error(line)
	}
	write(t, path, "domain: [\n")
	hangup()
	_, seen = s.log.await(t, seen, "rules not loaded")
	hangup()
	s.log.await(t, seen, "rules not loaded") // a second SIGHUP logs the fault that remains
}

// With FORCE_START_WITHOUT_INITIAL_CONFIG a faulty overlay does not end the server. It does not
// serve the rules without their overlay either.
func TestForceStartWithAFaultyOverlay(t *testing.T) {
	t.Parallel()
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: day}}\n")
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "CONFIG_OVERLAY="+overlay, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	line, seen := s.log.await(t, 0, "rules not loaded")
	if want := fmt.Sprintf(`"source":%q`, overlay); !strings.Contains(line, want) {
		t.Errorf("the log line lacks %s: %s", want, line)
	}
	if _, err := s.call("alice"); err == nil || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("%v, want no answer before the overlay is correct", err)
	}
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {algorithm: funnel, capacity: 9}}\n")
	s.log.await(t, seen, "rules loaded")
	if got := s.remaining("alice"); got != 9 {
		t.Errorf("%d remaining of a funnel that holds 9, want 9", got)
	}
}

// startWithOverlay starts a server with files of rules and of an empty overlay. seen is the index
// after the log line of the load.
func startWithOverlay(t *testing.T) (s *server, path, overlay string, seen int) {
	t.Helper()
	dir := t.TempDir()
	path, overlay = filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "overlay.yaml")
	write(t, path, rules)
	write(t, overlay, "domain: ugc\n")
	s = startServer(t, "CONFIG_PATH="+path, "CONFIG_OVERLAY="+overlay)
	_, seen = s.log.await(t, 0, "rules loaded")
	return s, path, overlay, seen
}

// The log names the overlay as the source of its faults, and the rules as the source of theirs.
func TestFaultOfOverlayNamesTheOverlay(t *testing.T) {
	t.Parallel()
	s, path, overlay, seen := startWithOverlay(t)
	for _, file := range []string{overlay, path} {
		write(t, file, "domain: [\n")
		var line string
		line, seen = s.log.await(t, seen, "rules not loaded")
		if want := fmt.Sprintf(`"source":%q`, file); !strings.Contains(line, want) {
			t.Errorf("the log line lacks %s: %s", want, line)
		}
	}
}

func TestOnStoreErrorLocalWithoutReplicasLogsAWarning(t *testing.T) {
	t.Parallel()
	const message = "local fallback without a replica count"
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules+"on_store_error: local\n")
	redis := "REDIS_URL=" + redistest.FreeAddr(t)
	startServer(t, "CONFIG_PATH="+path, redis).log.await(t, 0, message)
	for _, with := range []string{"REPLICAS=1", "REPLICAS=2", "--replicas=1", "REPLICAS_DNS=weir.invalid", "BACKEND_TYPE=memory"} {
		s := startServer(t, "CONFIG_PATH="+path, redis, with)
		s.log.await(t, 0, "rules loaded")
		if strings.Contains(s.output.String(), message) {
			t.Errorf("%s: warned", with)
		}
	}
}

// A new overlay that does not suit the rules in force is used for the next rules.
func TestOverlayAndRulesMayChangeTogether(t *testing.T) {
	t.Parallel()
	s, path, overlay, seen := startWithOverlay(t)
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {capacity: 9}}\n")
	_, seen = s.log.await(t, seen, "'capacity' has no meaning for the algorithm fixed_window")
	write(t, path, strings.Replace(rules, "unit: ", "algorithm: funnel, unit: ", 1))
	s.log.await(t, seen, "rules loaded")
	if got := s.remaining("alice"); got != 9 {
		t.Errorf("%d remaining of a funnel that holds 9, want 9", got)
	}
}

// A store remembers the end of a lease for 5 s. A lease that is opened later would hold its slot
// until its TTL.
func TestLongStoreTimeoutWithLeasesIsLogged(t *testing.T) {
	leases := limiters.Spec{Algorithm: "concurrency", Max: 1}
	window := limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour}
	reservations := window
	reservations.Params.Reserve.TTL = time.Minute
	for name, c := range map[string]struct {
		timeout time.Duration
		spec    limiters.Spec
		want    int
	}{
		"leases":                 {6 * time.Second, leases, 1},
		"reservations":           {6 * time.Second, reservations, 1},
		"a timeout of 5s":        {5 * time.Second, leases, 0},
		"no leases in the rules": {6 * time.Second, window, 0},
	} {
		t.Run(name, func(t *testing.T) {
			limit, err := limiters.NewLimit(c.spec)
			must.Succeed(t, err)
			b := descriptors.NewBuilder()
			key := b.Domain("d").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "lease"}})
			key.SetRule(descriptors.Rule{Limits: []descriptors.RateLimit{{Limit: limit}}})
			rules := b.Build()
			var log bytes.Buffer
			s := &settings.Serve{}
			s.StoreTimeout = c.timeout
			warn := ruleWarnings(s, telemetry.NewLog(&log, zapcore.InfoLevel, "json"))
			warn(rules)
			warn(rules)
			if got := strings.Count(log.String(), "store timeout too long for leases"); got != c.want {
				t.Errorf("logged %d times, want %d", got, c.want)
			}
		})
	}
}
