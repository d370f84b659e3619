// Package backoff computes the waits between attempts that fail.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff is a policy of exponential waits: the first wait is Initial, each further one is twice the last, at most Max.
type Backoff struct {
	Initial, Max time.Duration
	// Jitter is the random part of each wait, from 0 to 1. With 0 the waits are exact. With 1 a wait is anything from
	// zero to its full length, which spreads the attempts of many replicas.
	Jitter float64
}

// Wait returns the wait after a number of consecutive failures, counted from 0. It is never longer than Max.
func (b Backoff) Wait(failures int) time.Duration {
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

// Sleep waits for d, or until ctx ends. It returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}
