package main

import (
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

func TestObserverIsNilIfNotConfigured(t *testing.T) {
	for _, tt := range []struct {
		topKeys     int
		share       float64
		subscribers bool
		want        bool
	}{{}, {topKeys: 10, want: true}, {share: .1, want: true}, {subscribers: true, want: true}} {
		s := &settings.Serve{Observation: settings.Observation{TopKeys: &tt.topKeys, DenialLog: tt.share, DenialLogPerSecond: 1}}
		if tt.subscribers {
			s.AdminAddr = "127.0.0.1:0"
		}
		e := &environment{settings: s, log: zap.NewNop(), metrics: telemetry.NewMetrics("test")}
		if observer := e.openObserver(); (observer != nil) != tt.want {
			t.Errorf("%+v: got observer %v, want one: %t", tt, observer, tt.want)
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
