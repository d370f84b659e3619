package guard

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// Observed is a Store that reports the calls of another, for tracing or timing.
type Observed struct {
	limiters.Store
	// Start is called before each Take with its number of hits. It returns the context of the Take, and a function that is called
	// with its error afterwards.
	Start func(ctx context.Context, hits int) (context.Context, func(error))
}

// Take implements limiters.Store.
func (o *Observed) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	ctx, end := o.Start(ctx, len(out))
	err := split.ErrPanic // unless the Take returns
	defer func() { end(err) }()
	err = o.Store.Take(ctx, now, groups, out)
	return err
}
