package guard

import "context"

// A worker is the goroutine of a decorator, which makes calls to a store. The stop of the goroutine does not cancel a call, because its
// hits might be decided or not. Only the end of the time for closing does.
type worker struct {
	calls       context.Context //nolint:containedctx // the calls of a goroutine belong to no request
	cancelCalls context.CancelFunc
	stop        context.CancelFunc
	stopped     chan struct{}
}

// begin calls run on a goroutine, which must return when its context ends.
func (w *worker) begin(run func(context.Context)) {
	w.calls, w.cancelCalls = context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.stopped = stop, make(chan struct{})
	go func() {
		defer close(w.stopped)
		run(ctx)
	}()
}

// call returns the context of a call.
func (w *worker) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.calls, sendTimeout)
}

// end stops the goroutine and waits for it. The calls are canceled when ctx ends, or by the function that end returns.
func (w *worker) end(ctx context.Context) (done func()) {
	release := context.AfterFunc(ctx, w.cancelCalls)
	w.stop()
	<-w.stopped
	return func() {
		release()
		w.cancelCalls()
	}
}
