package ruleload

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// An outage logs each new error once at level error. The next connection logs how many attempts
// failed.
func TestOutageIsLoggedOncePerError(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	l := &connectionLog{log: zap.New(core)}
	refused, expired := errors.New("connection refused"), errors.New("certificate expired")
	for _, e := range []xds.Event{
		{Kind: xds.Connected},
		{Kind: xds.Disconnected, Err: refused, Retry: time.Second},
		{Kind: xds.Disconnected, Err: refused, Retry: time.Second},
		{Kind: xds.Disconnected, Err: expired, Retry: time.Second},
		{Kind: xds.Connected},
		{Kind: xds.Disconnected, Err: expired, Retry: time.Second},
		{Kind: xds.Disconnected}, // the end of Watch
	} {
		l.add(e)
	}
	var levels []string
	for _, line := range logged.All() {
		levels = append(levels, line.Level.String())
	}
	if want := []string{"info", "error", "debug", "error", "info", "error"}; !slices.Equal(levels, want) {
		t.Errorf("logged at levels %q, want %q", levels, want)
	}
	if got := logged.All()[4].ContextMap()["failed_attempts"]; got != int64(3) {
		t.Errorf("%v failed attempts, want 3", got)
	}
}

func TestPushesAreLoggedWithTheirOutcome(t *testing.T) {
	core, logged := observer.New(zap.DebugLevel)
	l := &connectionLog{log: zap.New(core)}
	l.add(xds.Event{Kind: xds.Accepted, Version: "7", Files: 2})
	l.add(xds.Event{Kind: xds.Rejected, Version: "8", Err: errors.New("a fault")})
	for i, want := range []map[string]any{
		{"outcome": "accepted", "xds_version": "7", "resources": int64(2)},
		{"outcome": "rejected", "xds_version": "8", "error": "a fault"},
	} {
		if got := logged.All()[i].ContextMap(); !maps.Equal(got, want) {
			t.Errorf("logged %v, want %v", got, want)
		}
	}
}
