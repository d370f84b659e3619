package xds_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// A watch is a running Watch with its rules and events.
type watch struct {
	t      *testing.T
	source *xds.Source
	rules  atomic.Pointer[descriptors.Rules]
	events chan xds.Event
}

func start(t *testing.T, source *xds.Source) *watch {
	t.Helper()
	w := &watch{t: t, source: source, events: make(chan xds.Event, 10_000)}
	source.NodeID = nodeID
	source.Backoff = backoff.Backoff{Initial: time.Millisecond, Max: 20 * time.Millisecond, Jitter: 1}
	source.Notify = func(e xds.Event) { w.events <- e }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- source.Watch(ctx, w.load) }()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, done, "the end of Watch"); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
	})
	return w
}

// load puts the rules of files in force. After an error the old rules stay.
func (w *watch) load(files []rulesfile.File, err error) error {
	if err != nil {
		return err
	}
	rules, err := rulesfile.Parse(files...)
	if err == nil {
		w.rules.Store(rules)
	}
	return err
}

// await waits for an event of a kind. Other events may precede it.
func (w *watch) await(kind xds.Kind) xds.Event {
	w.t.Helper()
	for {
		if e := receive(w.t, w.events, kind.String()); e.Kind == kind {
			return e
		}
	}
}

func (w *watch) wantLimit(domain string, want int) {
	w.t.Helper()
	got := -1
	if rule := w.rules.Load().Match(domain, []descriptors.Entry{{Key: "user", Value: "alice"}}); rule != nil {
		got = int(rule.Limits[0].RequestsPerUnit)
	}
	if got != want {
		w.t.Errorf("%s allows %d a year, want %d", domain, got, want)
	}
}

// broken returns a config with an unknown unit.
func broken(name string) *conf.RateLimitConfig {
	c := config(name, 1)
	c.Descriptors[0].RateLimit.Unit = 99
	return c
}

func TestXDSAppliesChangesAndKeepsRulesOnBadConfig(t *testing.T) {
	a := certtest.New(t)
	trusted := a.Issue(t, "envoy-ratelimit")
	files := tlsfiles.Client{CA: a.File, Cert: trusted.Cert, Key: trusted.Key, ServerName: "envoy-gateway"}
	s := newServer(t)
	s.set("1", config("b", 2), config("a", 1))
	s.serve("127.0.0.1:0", secure(t, a))
	w := start(t, &xds.Source{Server: s.address, TLS: files.Config})

	// First config.
	if first := s.request(); first.GetNode().GetId() != nodeID || first.GetVersionInfo() != "" {
		t.Errorf("the first request is %v", first)
	}
	s.acknowledged("1")
	w.wantLimit("a", 1)
	w.wantLimit("b", 2)

	// Change.
	s.set("2", config("a", 10), config("b", 2))
	s.acknowledged("2")
	w.wantLimit("a", 10)

	// The same config under another version.
	rules := w.rules.Load()
	s.set("3", config("b", 2), config("a", 10))
	s.acknowledged("3")
	w.await(xds.Unchanged)
	if w.rules.Load() != rules {
		t.Error("the rules are others, want the same")
	}

	// Bad config: the old rules stay, and the server receives the reason. It pushes again
	// immediately; the answer is delayed.
	began := time.Now()
	s.set("4", config("a", 11), broken("b"))
	for range 3 {
		r := s.request()
		if r.GetVersionInfo() != "3" || !strings.Contains(r.GetErrorDetail().GetMessage(), "invalid rate limit unit '99'") {
			t.Errorf("the request is %v, want a NACK", r)
		}
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("refused three times in %v", took)
	}
	w.wantLimit("a", 10)

	// Repaired.
	s.set("5", config("a", 12), config("b", 2))
	for {
		if r := s.request(); r.GetErrorDetail() == nil {
			if r.GetVersionInfo() != "5" {
				t.Errorf("the request is %v, want an ACK", r)
			}
			break
		}
	}
	w.wantLimit("a", 12)

	// Outage: the rules stay.
	s.stop()
	for range 3 {
		w.await(xds.Disconnected)
	}
	w.wantLimit("a", 12)

	// The server returns, with other rules under the same version.
	back := newServer(t)
	back.set("5", config("a", 13))
	back.serve(s.address, secure(t, a))
	first := back.request()
	if first.GetNode().GetId() != nodeID || first.GetVersionInfo() != "5" || first.GetResponseNonce() != "" {
		t.Errorf("the first request of a new stream is %v", first)
	}
	back.acknowledged("5")
	w.wantLimit("a", 13)
	w.wantLimit("b", -1)

	// No rules remain.
	back.set("6")
	back.acknowledged("")
	if domains, _ := w.rules.Load().Counts(); domains != 0 {
		t.Errorf("%d domains are left", domains)
	}
	back.set("7", config("a", 14))
	back.acknowledged("7")
	w.wantLimit("a", 14)
}

// A gateway that restarts first sends nothing, and then possibly a push without rules.
func TestRulesRemovedDuringXDSOutage(t *testing.T) {
	s := newServer(t)
	s.set("1", config("a", 1))
	s.serve("127.0.0.1:0")
	w := start(t, &xds.Source{Server: s.address})
	s.request()
	s.acknowledged("1")
	s.stop()
	back := newServer(t)
	back.serve(s.address)
	if r := back.request(); r.GetVersionInfo() != "1" {
		t.Errorf("the first request of a new stream is %v", r)
	}
	if r := back.request(); r.GetVersionInfo() != "1?" || r.GetResponseNonce() != "" {
		t.Errorf("the request after a silence is %v", r)
	}
	w.wantLimit("a", 1)
	back.set("1")
	back.acknowledged("")
	if domains, _ := w.rules.Load().Counts(); domains != 0 {
		t.Errorf("%d domains are left", domains)
	}
}
