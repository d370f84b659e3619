package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reconnector reconnects in the background after a call that lost its connection. Connecting may take longer than a call
// may, so without it a distant Redis would stay unreachable after the first lost connection. Each queue has one.
type reconnector struct {
	life    context.Context // ends with Close
	running *sync.WaitGroup // what Close waits for
	timeout time.Duration   // of connecting
	busy    atomic.Bool
}

// afterError reconnects after a call that failed with err, unless an attempt is under way. If Redis replied, the connection is
// intact; it is dropped only if the reply is MASTERDOWN.
func (r *reconnector) afterError(err error, c redis.UniversalClient) {
	leave := redis.IsMasterDownError(err)
	if replyOf(err) != nil && !leave || !r.busy.CompareAndSwap(false, true) {
		return
	}
	r.running.Go(func() {
		defer r.busy.Store(false)
		ctx, cancel := context.WithTimeout(r.life, r.timeout)
		defer cancel()
		if leave {
			// The name may resolve to another server by now. go-redis does this itself after READONLY.
			_ = c.Do(ctx, "quit").Err()
		}
		_ = c.Ping(ctx).Err()
	})
}

// slotsMayHaveMoved reports whether err may mean that another node has the slots now. MOVED and ASK need no such hint,
// because go-redis follows them.
func slotsMayHaveMoved(err error) bool {
	return replyOf(err) == nil || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}
