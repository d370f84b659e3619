package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

func TestReplicasAreCountedByDNS(t *testing.T) {
	var out bytes.Buffer
	s := &settings.Serve{}
	s.Replicas, s.ReplicasDNS, s.BackendType = 3, "weir.default.svc", settings.Redis
	r := newReplicas(s, telemetry.NewLog(&out, zapcore.InfoLevel, "text"))
	failing := false
	for _, c := range []struct {
		addresses []string
		err       error
		want      int
		logged    string
	}{
		{nil, errors.New("no such host"), 3, "not counted"},
		{nil, errors.New("no such host"), 3, ""},
		// Each pod of a dual-stack service has an address of each family.
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "fd00::3"}, nil, 3, ""},
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.1", "::ffff:10.0.0.3", "fd00::1"}, nil, 3, ""},
		{[]string{"10.0.0.1", "10.0.0.2"}, nil, 2, "replica count changed"},
		{[]string{}, nil, 2, ""},
		{nil, errors.New("time out"), 2, "not counted"},
		{[]string{"10.0.0.1"}, nil, 1, "replica count changed"},
	} {
		out.Reset()
		r.lookup = func(context.Context, string) ([]string, error) { return c.addresses, c.err }
		failing = r.lookUp(t.Context(), failing)
		if got := r.number(); got != c.want || (c.logged == "") != (out.Len() == 0) || !strings.Contains(out.String(), c.logged) {
			t.Errorf("%v, %v: %d replicas, want %d, and the log says %q", c.addresses, c.err, got, c.want, &out)
		}
	}
}

func TestReplicasOnMemoryLogAWarning(t *testing.T) {
	var out bytes.Buffer
	s := &settings.Serve{}
	s.Replicas, s.BackendType = 2, settings.Memory
	newReplicas(s, telemetry.NewLog(&out, zapcore.InfoLevel, "text"))
	if !strings.Contains(out.String(), "counters in memory are per replica") {
		t.Errorf("the log says %q", &out)
	}
}
