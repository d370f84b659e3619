package admission

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// arrive starts a request whose message arrives when stop is closed.
func arrive(ctx context.Context, arrivals *Arrivals, stop <-chan struct{}, results chan<- error) {
	ctx = arrivals.Context(ctx)
	go func() {
		results <- arrivals.Receive(ctx, func(any) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-stop:
				return nil
			}
		}, nil)
	}()
}

// While few messages are on their way there are no timers. Past that each message has ten seconds. No timer stays behind.
func TestPartialRequestsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrivals, results, stop := &Arrivals{}, make(chan error, 4*untimed), make(chan struct{})
		for range 3 * untimed {
			arrive(t.Context(), arrivals, stop, results)
		}
		expect := func(n int, want error) {
			t.Helper()
			synctest.Wait()
			if len(results) != n {
				t.Errorf("%d requests ended, want %d", len(results), n)
			}
			for range len(results) {
				if err := <-results; !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
		}
		time.Sleep(messageTimeout - time.Nanosecond)
		expect(0, nil)
		time.Sleep(time.Nanosecond)
		expect(2*untimed, ErrLate)
		arrive(t.Context(), arrivals, stop, results) // with a timer: the first are still waiting
		close(stop)
		expect(untimed+1, nil)
		if n, m := arrivals.waiting.Load(), arrivals.timers.Load(); n != 0 || m != 0 {
			t.Errorf("%d requests waiting and %d timers, want none", n, m)
		}
	})
}

// A request's own deadline counts if it is the earlier one.
func TestEarlierRequestDeadlineWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for deadline, want := range map[time.Duration]error{time.Second: context.DeadlineExceeded, time.Hour: ErrLate} {
			arrivals, results := &Arrivals{}, make(chan error, 1)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			start := time.Now()
			arrive(ctx, arrivals, nil, results)
			if err := <-results; !errors.Is(err, want) || time.Since(start) != min(deadline, messageTimeout) {
				t.Errorf("with %v: %v after %v, want %v", deadline, err, time.Since(start), want)
			}
			if n, m := arrivals.waiting.Load(), arrivals.timers.Load(); n != 0 || m != 0 {
				t.Errorf("%d requests waiting and %d timers, want none", n, m)
			}
		}
	})
}

// A request that ended for another reason is not late, and is not received.
func TestCanceledRequestIsNotLate(t *testing.T) {
	arrivals := &Arrivals{}
	arrivals.waiting.Store(untimed)
	parent, cancel := context.WithCancel(t.Context())
	ctx := arrivals.Context(parent)
	cancel()
	err := arrivals.Receive(ctx, func(any) error {
		t.Error("received")
		return nil
	}, nil)
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLate) {
		t.Errorf("%v, want that of the context", err)
	}
	if n, m := arrivals.waiting.Load(), arrivals.timers.Load(); n != untimed || m != 0 {
		t.Errorf("%d requests waiting and %d timers, want %d and none", n, m, untimed)
	}
}

func BenchmarkArrival(b *testing.B) {
	arrivals := &Arrivals{}
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	short, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	receive := func(any) error { return nil }
	for name, ctx := range map[string]context.Context{"no deadline": context.WithoutCancel(ctx), "envoy's deadline": short} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = arrivals.Receive(arrivals.Context(ctx), receive, nil)
			}
		})
	}
}
