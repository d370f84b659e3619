package xds

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
)

// A server may return right after the begin of an attempt, so the time from one attempt to the next bounds how late its
// rules arrive.
func TestAttemptsAreAtMost10sApart(t *testing.T) {
	for _, waits := range []backoff.Backoff{
		{Initial: time.Second, Max: defaultMaxWait, Jitter: 1},
		{Initial: 3 * time.Second, Max: defaultMaxWait},
		{Initial: time.Hour, Max: defaultMaxWait},
	} {
		w := &watch{waits: waits}
		for failures := range 100 {
			for _, took := range []time.Duration{0, time.Millisecond, 3 * time.Second, defaultConnectTimeout} {
				if apart := took + w.wait(unreachable, failures, took); apart > 10*time.Second {
					t.Errorf("%+v: after %d failures, and an attempt of %v, the next begins after %v", waits, failures, took, apart)
				}
			}
			for _, result := range []outcome{silent, useful} {
				if wait := w.wait(result, failures, time.Hour); wait > 10*time.Second {
					t.Errorf("%+v: %v after a stream", waits, wait)
				}
			}
		}
	}
}

func TestFirstWaitAfterAUsefulStreamIsShort(t *testing.T) {
	w := &watch{waits: backoff.Backoff{Initial: 3 * time.Second, Max: time.Minute}}
	if got := w.wait(useful, 10, time.Hour); got != time.Second {
		t.Errorf("%v, want 1s", got)
	}
	w.waits.Initial = 100 * time.Millisecond
	if got := w.wait(useful, 0, time.Hour); got != 100*time.Millisecond {
		t.Errorf("%v, want the initial wait", got)
	}
}
