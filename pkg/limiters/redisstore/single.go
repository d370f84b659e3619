package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A singleServer is one Redis server, or a master behind Sentinels.
type singleServer struct {
	*queue
	namer       keyNamer
	script      scriptCaller
	reconnector *reconnector
}

func newSingleServer(client redis.UniversalClient, namer keyNamer, config queueConfig, r *reconnector) *singleServer {
	s := &singleServer{namer: namer, script: newScriptCaller(client), reconnector: r}
	s.queue = newQueue(config, config.stats.counted(s.call))
	return s
}

// call is the [callFunc] of the queue.
func (s *singleServer) call(ctx context.Context, times callTimes, groups []limiters.Group, out []limiters.Verdict) error {
	b := newBatch(times)
	defer b.release()
	b.encode(groups, s.namer.keysIn(&b.buffer, groups))
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
