package main

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

func TestDecisionsAreNotReadIfNotConfigured(t *testing.T) {
	for _, tt := range []struct {
		topKeys                 int
		share                   float64
		adminAddr               string
		wantTopKeys, wantStream bool
	}{{}, {topKeys: 10}, {topKeys: 10, adminAddr: "127.0.0.1:0", wantTopKeys: true, wantStream: true}, {share: .1, wantStream: true}, {adminAddr: "127.0.0.1:0", wantStream: true}} {
		s := &settings.Serve{Observation: settings.Observation{TopKeys: &tt.topKeys, DenialLog: tt.share, DenialLogPerSecond: 1}}
		s.AdminAddr = tt.adminAddr
		e := &environment{settings: s, log: zap.NewNop(), metrics: telemetry.NewMetrics("test")}
		if top, stream := e.openTopKeys(), e.openDecisionStream(); (top != nil) != tt.wantTopKeys || (stream != nil) != tt.wantStream {
			t.Errorf("%+v: top keys %t, stream %t", tt, top != nil, stream != nil)
		}
	}
}

// A denied request is one line at level info, which names the limit and no user.
func TestDenialLogNamesTheLimitAndNoUser(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--config="+rulesFile(t), "DENIAL_LOG=1")
	for range 4 {
		if _, err := s.call("alice"); err != nil {
			t.Fatal(err)
		}
	}
	line, _ := s.log.await(t, 0, `"request denied"`)
	for _, want := range []string{
		`"level":"info"`, `"domain":"ugc"`, `"rule":"user_id"`, `"limit":"0"`, `"algorithm":"`, `"enforced":true`, `"key_hash":"`,
		`"retry_after_seconds":`, `"used":`, `"rules_version":"`, `"replica":"`,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	if strings.Contains(line, "alice") {
		t.Errorf("the line names the user: %s", line)
	}
}
