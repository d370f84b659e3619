package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reconnector reconnects in the background after a call has lost its connection. Connecting may
// take longer than the timeout of a call, so without it a distant Redis would stay unreachable.
// The single server and each node have one.
type reconnector struct {
	ctx     context.Context // ends with Close
	timeout time.Duration
	running *sync.WaitGroup // of the Store, which waits for the attempts
	busy    atomic.Bool
}

// afterError reconnects after a call that failed with err, unless an attempt is in progress. If
// Redis replied, the connection is intact; it is closed only after MASTERDOWN.
func (r *reconnector) afterError(err error, c redis.UniversalClient) {
	masterDown := redis.IsMasterDownError(err)
	if redisReplied(err) && !masterDown || !r.busy.CompareAndSwap(false, true) {
		return
	}
	r.running.Go(func() {
		defer r.busy.Store(false)
		ctx, cancel := context.WithTimeout(r.ctx, r.timeout)
		defer cancel()
		if masterDown {
			// The name may now resolve to another server. go-redis reconnects by itself only after
			// READONLY.
			_ = c.Do(ctx, "quit").Err()
		}
		_ = c.Ping(ctx).Err()
	})
}
