package xds

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff says how long to wait before the next connection: Initial, and twice as long after each that fails, up to
// Max. A connection that brought a push, or lasted longer than Max, begins anew.
type Backoff struct {
	Initial, Max time.Duration
	Jitter       float64 // the share of each wait that is drawn by lot, from 0 to 1: with 1 a wait is 0 to what it was
}

// DefaultBackoff is jittered in full, so that many replicas do not come back to a control plane at once.
var DefaultBackoff = Backoff{Initial: time.Second, Max: time.Minute, Jitter: 1}

func (b Backoff) orDefault() Backoff {
	if b == (Backoff{}) {
		return DefaultBackoff
	}
	return b
}

// wait is how long to wait after failures, 0 being the first.
func (b Backoff) wait(failures int) time.Duration {
	d := min(b.Initial, b.Max)
	for range failures {
		if d > b.Max/2 {
			d = b.Max
			break
		}
		d *= 2
	}
	return d - time.Duration(rand.Float64()*min(max(b.Jitter, 0), 1)*float64(d))
}

// sleep gives the error of ctx if it ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}
