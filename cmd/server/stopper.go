package main

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A stopper stops a process at signals. The first one requests the stop. Each further
// one ends the wait in progress. No signal kills the process before it has saved its counters.
type stopper struct {
	signals   <-chan os.Signal // further ones, once requested has ended
	requested context.Context  // ends at the first signal, or when wait returns
	request   context.CancelFunc
	first     os.Signal       // set before requested ends, unless wait has ended it
	forced    context.Context // ends when the requests in flight must end
	force     context.CancelFunc
	saveBegun atomic.Bool   // the save has begun
	saved     chan struct{} // closed when the counters are saved
	stopped   chan struct{} // closed when the process has stopped
	abandoned chan struct{} // closed when a forced stop has timed out
	watching  sync.WaitGroup
}

func newStopper(signals <-chan os.Signal) *stopper {
	s := &stopper{
		signals: signals, saved: make(chan struct{}), stopped: make(chan struct{}), abandoned: make(chan struct{}),
	}
	s.requested, s.request = context.WithCancel(context.Background())
	s.forced, s.force = context.WithCancel(context.Background())
	s.watching.Go(func() {
		select {
		case s.first = <-signals:
			s.request()
		case <-s.requested.Done():
		}
	})
	return s
}

// wait returns the first signal, even one from before the call, or nil when ctx ends.
func (s *stopper) wait(ctx context.Context) os.Signal {
	select {
	case <-s.requested.Done():
	case <-ctx.Done():
		s.request()
	}
	s.watching.Wait()
	return s.first
}

// delay waits for d, or until a further signal.
func (s *stopper) delay(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.signals:
	}
}

// forceAfter forces the stop after timeout or a further signal, unless done is called before.
func (s *stopper) forceAfter(timeout time.Duration) {
	s.watching.Go(func() { s.watch(timeout) })
}

const (
	// forcedStopTimeout bounds a forced stop before its save, and again after it. A store call in
	// flight may last longer, up to STORE_TIMEOUT.
	forcedStopTimeout = 2 * time.Second
	// saveTimeout bounds a save after forcedStopTimeout. A slow disk needs more time than calls.
	saveTimeout = 30 * time.Second
)

func (s *stopper) watch(timeout time.Duration) {
	select {
	case <-s.stopped:
		return
	case <-s.signals:
	case <-time.After(timeout):
	}
	s.force()
	if closesWithin(s.stopped, forcedStopTimeout) {
		return
	}
	if s.saveBegun.Load() && closesWithin(s.saved, saveTimeout) && closesWithin(s.stopped, forcedStopTimeout) {
		return
	}
	close(s.abandoned)
}

// closesWithin reports whether c is closed within d.
func closesWithin(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

// save calls f, which saves the counters, once. A forced stop waits for f longer than for calls.
func (s *stopper) save(f func()) {
	s.saveBegun.Store(true)
	f()
	close(s.saved)
}

// done must be called when the process has stopped.
func (s *stopper) done() {
	close(s.stopped)
	s.watching.Wait()
	s.force()
}
