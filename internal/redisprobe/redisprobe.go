// Package redisprobe checks whether a Redis answers within the timeout of the calls to it.
package redisprobe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
)

// A Prober checks the Redis of a store.
type Prober struct {
	Store   *redisstore.Store
	Timeout time.Duration // STORE_TIMEOUT, which a round trip must not reach
	Log     *zap.Logger
}

// retry is the wait between checks of a Redis that has not answered yet.
var retry = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// Await checks Redis until it answers within the timeout, and logs each failure. Its error is that
// of ctx.
func (p *Prober) Await(ctx context.Context) error {
	for failures := 0; ; failures++ {
		result, err := p.probe(ctx)
		switch {
		case err == nil:
			switch {
			case result.MayEvict():
				p.Log.Warn("redis may evict counters", zap.String("maxmemory_policy", result.EvictionPolicy),
					zap.String("remedy", "set its maxmemory-policy to noeviction"))
			case result.EvictionPolicy == "":
				p.Log.Warn("redis hides whether it may evict counters",
					zap.String("remedy", "set maxmemory-policy to noeviction, and let Weir's user call INFO (+info)"))
			}
			p.Log.Info("redis answers", zap.Duration("took_seconds", result.RoundTrip))
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		wait := retry.Wait(failures)
		p.Log.Error(failureMessage(err), zap.Error(err), zap.Duration("retry_seconds", wait))
		if err := backoff.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func failureMessage(err error) string {
	switch {
	case errors.Is(err, errRoundTripTooLong):
		return "redis answers too late"
	case errors.Is(err, redisstore.ErrAuth):
		return "redis rejected the password"
	}
	return "redis does not answer"
}

// Check returns an error unless Redis answers within the timeout. It charges nothing.
func (p *Prober) Check(ctx context.Context) error {
	_, err := p.probe(ctx)
	return err
}

var errRoundTripTooLong = errors.New("a call to Redis takes longer than STORE_TIMEOUT")

// probe is [redisstore.Store.Probe], but fails if a round trip takes as long as the timeout.
func (p *Prober) probe(ctx context.Context) (redisstore.ProbeResult, error) {
	result, err := p.Store.Probe(ctx)
	if err != nil {
		return result, err
	}
	result.RoundTrip = result.RoundTrip.Round(10 * time.Microsecond)
	if result.RoundTrip >= p.Timeout {
		return result, fmt.Errorf("%w: %v, want less than %v: raise STORE_TIMEOUT, and the timeout of Envoy's rate limit filter to more than six times that",
			errRoundTripTooLong, result.RoundTrip, p.Timeout)
	}
	return result, nil
}
