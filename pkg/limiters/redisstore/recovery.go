package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A recovery makes, after a call that lost its connection, the next one, in the time that connecting takes and a call has
// not: a Redis that is nearly as far away as a call may take would else be lost for good with the first connection that is.
// There is one for each lane.
type recovery struct {
	life    context.Context // of the store
	done    *sync.WaitGroup // what the store waits for
	connect time.Duration
	busy    atomic.Bool
}

// after does so while calls go on, unless it is being done. A server that answered has lost nothing, unless it says that
// it is none to ask.
func (r *recovery) after(err error, c redis.UniversalClient) {
	leave := redis.IsMasterDownError(err)
	if answerOf(err) != nil && !leave || !r.busy.CompareAndSwap(false, true) {
		return
	}
	r.done.Go(func() {
		defer r.busy.Store(false)
		ctx, cancel := context.WithTimeout(r.life, r.connect)
		defer cancel()
		if leave {
			// Behind the name there may be another by now. READONLY go-redis leaves by itself.
			_ = c.Do(ctx, "quit").Err()
		}
		_ = c.Ping(ctx).Err()
	})
}

// slotsAreElsewhere tells whether an error of a node may mean that another has its slots by now. Who is sent on to another
// needs no such hint: go-redis takes it.
func slotsAreElsewhere(err error) bool {
	return answerOf(err) == nil || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}
