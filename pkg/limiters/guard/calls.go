package guard

import "context"

// calls bounds the calls that a goroutine of a decorator makes to its store. The end of the goroutine does not cancel a call,
// because its hits might be decided or not. Only the end of the time for closing does.
type calls struct {
	ctx    context.Context //nolint:containedctx // the calls of a goroutine belong to no request
	cancel context.CancelFunc
}

func newCalls() calls {
	ctx, cancel := context.WithCancel(context.Background())
	return calls{ctx, cancel}
}

// call returns the context of a call.
func (c *calls) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, sendTimeout)
}

// cancelAfter cancels the calls when ctx ends. The function that it returns cancels them too, and releases ctx.
func (c *calls) cancelAfter(ctx context.Context) (done func()) {
	release := context.AfterFunc(ctx, c.cancel)
	return func() {
		release()
		c.cancel()
	}
}
