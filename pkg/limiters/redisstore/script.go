package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A script is Lua source and its digest, by which Redis caches it.
type script struct{ source, digest string }

// batchScript returns the script that decides batches. It is the same for all stores.
var batchScript = sync.OnceValue(func() script { return newScript(redisscripts.Batch(redisscripts.Algorithms...)) })

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script for a batch. A call that has certainly not run is sent once more. It carries the source if the server
// did not know the script, and a new deadline if the clock was wrong or unknown.
func (s script) run(ctx context.Context, c processor, clock *serverClock, b *batch) (reply, error) {
	r, err := s.once(ctx, c, clock, b)
	if err == nil && r.late() && !tooLate(ctx) {
		return s.once(ctx, c, clock, b)
	}
	return r, err
}

func (s script) once(ctx context.Context, c processor, clock *serverClock, b *batch) (reply, error) {
	r, err := call(ctx, c, clock, "evalsha", s.digest, b)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return call(ctx, c, clock, "eval", s.source, b)
	}
	return r, err
}

// ping runs the script for no hits and returns how long that took.
func (s script) ping(ctx context.Context, c processor, clock *serverClock) (time.Duration, error) {
	b := newBatch(time.Time{}, nil, nil)
	start := time.Now()
	_, err := s.once(ctx, c, clock, b)
	return time.Since(start), err
}

func call(ctx context.Context, c processor, clock *serverClock, name, text string, b *batch) (reply, error) {
	cmd := newCommand(ctx, clock, name, text, b)
	if err := c.Process(ctx, cmd); err != nil {
		return reply{}, err
	}
	return cmd.reply(clock)
}

// A processor sends a command to one Redis, or to the node of a cluster that has the command's keys.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A command runs the script. It charges hits, so it is sent only once.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, clock *serverClock, name, text string, b *batch) command {
	return command{redis.NewCmd(ctx, b.args(name, text, clock.notAfter(ctx, b.latest))...)}
}

// NoRetry keeps go-redis' cluster client from sending a command again after a lost connection or a timeout.
func (command) NoRetry() bool { return true }

// reply parses the reply, and sets the clock by it.
func (c command) reply(clock *serverClock) (reply, error) {
	value, err := c.Result()
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(value)
	if err == nil {
		clock.update(r.server)
	}
	return r, err
}
