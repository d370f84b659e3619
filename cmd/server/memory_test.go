package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
)

func TestReplicasOnMemoryLogAWarning(t *testing.T) {
	var out bytes.Buffer
	s := &settings.Serve{}
	s.Replicas, s.BackendType = new(2), settings.Memory
	countReplicas(s, telemetry.NewLog(&out, zapcore.InfoLevel, "text"))
	if !strings.Contains(out.String(), "counters in memory are per replica") {
		t.Errorf("the log says %q", &out)
	}
}

func TestReplicasOfDNSAreLogged(t *testing.T) {
	for name, want := range map[string]string{
		"localhost":         "replica count changed",
		"replicas.invalid.": "replica count failed, keeping the last count",
	} {
		t.Run(name, func(t *testing.T) {
			messages := lines{more: make(chan struct{})}
			core, _ := observer.New(zap.InfoLevel)
			log := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
				messages.add(e.Message)
				return nil
			}))
			s := &settings.Serve{}
			s.Replicas, s.ReplicasDNS = new(3), name
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				countReplicas(s, log).Run(ctx)
			}()
			defer func() {
				cancel()
				<-ended
			}()
			if got, n := messages.await(t, 0, want); got != want || n != 1 {
				t.Errorf("line %d of the log says %q, want %q as the first", n, got, want)
			}
		})
	}
}

func TestMemoryMaxBytesDefaultsToHalfOfCgroupMemory(t *testing.T) {
	of := func(bytes uint64, err error) memlimit.Provider { return func() (uint64, error) { return bytes, err } }
	for name, c := range map[string]struct {
		set   int64
		limit memlimit.Provider
		want  int64
	}{
		"set":                  {1 << 20, of(1<<29, nil), 1 << 20},
		"a small limit":        {0, of(1<<29, nil), 1 << 28},
		"a large limit":        {0, of(64<<30, nil), 4 << 30},
		"no limit":             {0, of(0, memlimit.ErrNoLimit), 4 << 30},
		"a limit of MaxUint64": {0, of(math.MaxUint64, nil), 4 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memoryBudget(c.set, c.limit); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
}
