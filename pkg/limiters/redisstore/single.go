package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A singleServer is one Redis server, or a master behind Sentinels.
type singleServer struct {
	*queue
	store       *Store
	script      scriptCaller
	reconnector *reconnector
}

func newSingleServer(store *Store) *singleServer {
	s := &singleServer{store: store, script: newScriptCaller(store.client), reconnector: store.newReconnector()}
	s.queue = newQueue(store.queues, s.call)
	return s
}

// call is the [callFunc] of the queue.
func (s *singleServer) call(ctx context.Context, notAfter time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	s.store.stats.countCall(len(out))
	b := newBatch(s.store.now(), notAfter)
	defer b.release()
	b.encode(groups, s.store.namer.keys(groups))
	r, err := s.script.call(ctx, b)
	if err != nil {
		s.reconnector.afterError(err, s.script.client)
		if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "CROSSSLOT") {
			return fmt.Errorf("this Redis is a cluster: set REDIS_TYPE, or REDIS_PERSECOND_TYPE, to CLUSTER: %w", err)
		}
		return err
	}
	return b.decode(r, out)
}

func (s *singleServer) masters(context.Context) ([]master, error) {
	return []master{{client: s.script.client}}, nil
}
