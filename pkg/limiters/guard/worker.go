package guard

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// callTimeout bounds a store call of a worker.
const callTimeout = time.Second

// A worker is the goroutine of a decorator that calls a store. Stopping the goroutine does not cancel a call in flight, because the
// operations of the call would be undecided. Only the context of stopWorker cancels the call.
type worker struct {
	calls       context.Context // the calls of a goroutine belong to no request
	cancelCalls context.CancelFunc
	stop        context.CancelFunc
	stopped     chan struct{}
}

// startWorker calls run on a goroutine. run must return when its context ends.
func (w *worker) startWorker(run func(context.Context)) {
	w.calls, w.cancelCalls = context.WithCancel(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	w.stop, w.stopped = stop, make(chan struct{})
	go func() {
		defer close(w.stopped)
		run(ctx)
	}()
}

// send sends operations to store in one call, each in a group of its own. If the call fails, each verdict gets the error too. It recovers,
// because nothing else on the goroutine does.
func (w *worker) send(store limiters.Store, ops []limiters.Op) ([]limiters.Verdict, error) {
	ctx, cancel := context.WithTimeout(w.calls, callTimeout)
	defer cancel()
	var all split.Subset
	for i, g := range limiters.Singles(ops...) {
		all.Add(g, i)
	}
	err := all.TakeRecovering(ctx, store, time.Time{})
	return all.Verdicts, err
}

// stopWorker stops the goroutine and waits for it. Calls are canceled when ctx ends or the returned function is called.
func (w *worker) stopWorker(ctx context.Context) (done func()) {
	release := context.AfterFunc(ctx, w.cancelCalls)
	w.stop()
	<-w.stopped
	return func() {
		release()
		w.cancelCalls()
	}
}
