package guard

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// callTimeout bounds a store call of a worker.
const callTimeout = time.Second

// A worker is the goroutine of a decorator that calls a store. Stopping the goroutine does not
// cancel a call in flight, because the operations of the call would be undecided. Only the context
// of stopWorker cancels the call.
type worker struct {
	callCtx     context.Context // the context of all calls, because they belong to no request
	cancelCalls context.CancelFunc
	stop        context.CancelFunc
	stopped     chan struct{}
}

// startWorker calls run on a goroutine. run must return when its context ends.
func (w *worker) startWorker(run func(context.Context)) {
	w.callCtx, w.cancelCalls = context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.stopped = stop, make(chan struct{})
	go func() {
		defer close(w.stopped)
		run(ctx)
	}()
}

// send sends operations to store in one call, each in a group of its own. If the call fails, each
// verdict gets the error too. It turns a panic of the store into an error, because nothing else on
// the goroutine recovers.
func (w *worker) send(store limiters.Taker, ops []limiters.Op) ([]limiters.Verdict, error) {
	ctx, cancel := context.WithTimeout(w.callCtx, callTimeout)
	defer cancel()
	verdicts := make([]limiters.Verdict, len(ops))
	err := limiters.CatchPanic(func() error { return store.Take(ctx, limiters.Singles(ops...), verdicts) })
	if err != nil {
		limiters.FailAll(verdicts, err)
	}
	return verdicts, err
}

// stopWorker stops the goroutine and waits for it. Calls are canceled when ctx ends or the returned
// function is called.
func (w *worker) stopWorker(ctx context.Context) (cancelCalls func()) {
	stopWatching := context.AfterFunc(ctx, w.cancelCalls)
	w.stop()
	<-w.stopped
	return func() {
		stopWatching()
		w.cancelCalls()
	}
}
