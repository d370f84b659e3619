package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A single is one Redis server, or a master behind Sentinels.
type single struct {
	*queue
	server      server
	reconnector *reconnector
}

func newSingle(s *shared, client redis.UniversalClient) *single {
	one := &single{server: newServer(client, ""), reconnector: &reconnector{shared: s}}
	one.queue = &queue{shared: s, call: one.call}
	return one
}

// call is the [callFunc] of the queue.
func (s *single) call(ctx context.Context, notAfter, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	b := pooledBatch(notAfter, now, groups, s.namer)
	defer b.release()
	r, err := s.server.call(ctx, b)
	if err != nil {
		s.reconnector.afterError(err, s.server.client)
		if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "CROSSSLOT") {
			return fmt.Errorf("this Redis is a cluster: set its type to cluster: %w", err)
		}
		return err
	}
	return b.read(r, out)
}

func (s *single) masters(context.Context) ([]server, error) { return []server{s.server}, nil }
