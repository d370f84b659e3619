// Package backoff computes waits between attempts.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// A Backoff is an exponential backoff: the first wait is Initial, and each further wait doubles, up
// to Max.
type Backoff struct {
	Initial, Max time.Duration
	// Jitter is the random fraction of each wait, from 0 to 1. With 1, a wait is uniform between 0
	// and its full length, which spreads the attempts of many replicas.
	Jitter float64
}

// Wait returns the wait after a number of consecutive failures, from 0. It is at most Max.
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

// Sleep waits for d or until ctx ends, and returns ctx.Err().
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return ctx.Err()
}
