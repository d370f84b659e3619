package xds_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// A watch is a running Watch, its rules and its events.
type watch struct {
	t      *testing.T
	source *xds.Source
	rules  atomic.Pointer[descriptors.Rules]
	events chan xds.Event
	loads  chan []rulesfile.File // the files of each readable push, before they are parsed
	faults chan error            // of each push that cannot be read
	stop   func()
}

// quick is a short backoff.
var quick = backoff.Backoff{Initial: time.Millisecond, Max: 20 * time.Millisecond, Jitter: 1}

// start watches until the test ends or calls stop. It sets a short backoff if the source has none.
func start(t *testing.T, source *xds.Source) *watch {
	t.Helper()
	w := &watch{t: t, source: source, events: make(chan xds.Event, 10_000), loads: make(chan []rulesfile.File, 100), faults: make(chan error, 100)}
	if source.Backoff == (backoff.Backoff{}) {
		source.Backoff = quick
	}
	source.Notify = func(e xds.Event) { w.events <- e }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- source.Watch(ctx, func(files []rulesfile.File, err error) error {
			if err != nil {
				w.faults <- err
				return err
			}
			w.loads <- files
			return w.load(files)
		})
	}()
	stopped := false
	w.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := receive(t, done, "the end of Watch"); !errors.Is(err, context.Canceled) {
			t.Errorf("Watch: %v", err)
		}
		mustStopAllGoroutines(t)
	}
	t.Cleanup(w.stop)
	return w
}

// mustStopAllGoroutines fails the test if a goroutine of a client still runs.
func mustStopAllGoroutines(t *testing.T) {
	t.Helper()
	left, deadline := goroutines(), time.Now().Add(soon)
	for len(left) > 0 && time.Now().Before(deadline) {
		runtime.Gosched() // a goroutine may be about to end
		left = goroutines()
	}
	if len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n\n"))
	}
}

func goroutines() []string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var left []string
	for _, g := range strings.Split(string(stacks), "\n\n") {
		for _, of := range []string{"xds.(*", "transport.(*http2Client)", "grpc.(*ClientConn)", "grpc.(*addrConn)"} {
			if strings.Contains(g, of) && !strings.Contains(g, "xds_test.goroutines") {
				left = append(left, g)
				break
			}
		}
	}
	return left
}

// load puts the rules of files in force. On an error the old rules stay.
func (w *watch) load(files []rulesfile.File) error {
	rules, err := rulesfile.Parse(files...)
	if err == nil {
		w.rules.Store(rules)
	}
	return err
}

// await waits for an event of a kind. Other events may come before it.
func (w *watch) await(kind xds.Kind) xds.Event {
	w.t.Helper()
	for {
		if e := receive(w.t, w.events, kind.String()); e.Kind == kind {
			return e
		}
	}
}

// next waits for the next event, which must be of the kind.
func (w *watch) next(kind xds.Kind) xds.Event {
	w.t.Helper()
	e := receive(w.t, w.events, kind.String())
	if e.Kind != kind {
		w.t.Fatalf("%v came, with %v, want %v", e.Kind, e.Err, kind)
	}
	return e
}

// limit returns the limit per minute of a user in domain, -1 without a rule.
func (w *watch) limit(domain string) int {
	rule := w.rules.Load().Match(domain, []descriptors.Entry{{Key: "user", Value: "alice"}})
	if rule == nil {
		return -1
	}
	return int(rule.Limits[0].RequestsPerUnit)
}

func (w *watch) wantLimit(domain string, want int) {
	w.t.Helper()
	if got := w.limit(domain); got != want {
		w.t.Errorf("%s allows %d a minute, want %d", domain, got, want)
	}
}
