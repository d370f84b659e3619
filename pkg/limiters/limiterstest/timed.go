package limiterstest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A TimedStore is a Store that can also decide at a given time.
type TimedStore interface {
	limiters.Store
	// TakeAt is Take at the time now. If now is zero, it is Take.
	TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error
}

// Decorated returns a TimedStore for a decorator. The stores below the decorator must be from
// [Inner]: they find the time of TakeAt in the context.
func Decorated(decorator limiters.Store) TimedStore { return decorated{decorator} }

// Inner returns store for a decorator that is tested by [Decorated].
func Inner(store TimedStore) limiters.Store { return inner{store} }

type nowKey struct{}

type decorated struct{ limiters.Store }

func (d decorated) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	return d.Take(context.WithValue(ctx, nowKey{}, now), groups, out)
}

type inner struct{ TimedStore }

func (i inner) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	now, _ := ctx.Value(nowKey{}).(time.Time)
	return i.TakeAt(ctx, now, groups, out)
}

// A Clock is the clock of a store under test, whose option Now is the method of that name. The zero
// time, with which a Clock begins, stands for the store's own clock.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set sets the time.
func (c *Clock) Set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// Timed returns a TimedStore for a store with this clock. Its calls at different times must not be
// concurrent, and its Take decides at the time of the last TakeAt.
func (c *Clock) Timed(store limiters.Store) TimedStore { return clocked{store, c} }

type clocked struct {
	limiters.Store
	clock *Clock
}

func (c clocked) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	c.clock.Set(now)
	return c.Take(ctx, groups, out)
}
