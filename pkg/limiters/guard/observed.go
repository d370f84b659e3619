package guard

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// Observed is a Store that reports the calls of another, for tracing or timing.
type Observed struct {
	inner
	start func(ctx context.Context, hits int) (context.Context, func(error))
}

// NewObserved returns an Observed that wraps store, without taking ownership. start is called before each Take with its number of
// hits. It returns the context of the Take, and a function that is called with the error of the Take afterwards.
func NewObserved(store limiters.Store, start func(ctx context.Context, hits int) (context.Context, func(error))) *Observed {
	return &Observed{inner: store, start: start}
}

// Take implements limiters.Store.
func (o *Observed) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	ctx, end := o.start(ctx, len(out))
	err := split.ErrPanic // unless the Take returns
	defer func() { end(err) }()
	err = o.inner.Take(ctx, now, groups, out)
	return err
}
