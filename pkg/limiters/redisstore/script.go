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

// A script is Lua source with the digest under which Redis caches it.
type script struct{ source, digest string }

var batchScript = sync.OnceValue(func() script {
	source := redisscripts.Source()
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
})

// call calls the script for a batch. It repeats a call only if the call certainly did not run. The second call carries the source if the
// server did not have the script, and a new deadline if the clock was wrong or unknown.
func (s script) call(ctx context.Context, c redis.UniversalClient, clock *serverClock, b *batch) (reply, error) {
	r, err := s.callOnce(ctx, c, clock, b)
	if b.rejectedTooEarly(r, err) {
		return s.callOnce(ctx, c, clock, b)
	}
	return r, err
}

// rejectedTooEarly reports whether the script rejected the call as late although b.notAfter has not passed by the local clock. The
// serverClock was wrong or unknown, and the reply has corrected it.
func (b *batch) rejectedTooEarly(r reply, err error) bool {
	return err == nil && r.isLate() && time.Now().Before(b.notAfter)
}

func (s script) callOnce(ctx context.Context, c redis.UniversalClient, clock *serverClock, b *batch) (reply, error) {
	r, err := eval(ctx, c, clock, "evalsha", s.digest, b)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return eval(ctx, c, clock, "eval", s.source, b)
	}
	return r, err
}

// ping calls the script without hits and returns the duration.
func (s script) ping(ctx context.Context, c redis.UniversalClient, clock *serverClock) (time.Duration, error) {
	b := newBatch(time.Time{}, time.Time{})
	start := time.Now()
	_, err := s.callOnce(ctx, c, clock, b)
	return time.Since(start), err
}

// eval sends the command name, evalsha or eval, with its text, a digest or the source.
func eval(ctx context.Context, c redis.UniversalClient, clock *serverClock, name, text string, b *batch) (reply, error) {
	cmd := newCommand(ctx, clock, name, text, b)
	if err := c.Process(ctx, cmd); err != nil {
		return reply{}, err
	}
	return cmd.parse(clock)
}

// A command calls the script. It may charge hits, so it is sent only once.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, clock *serverClock, name, text string, b *batch) command {
	return command{redis.NewCmd(ctx, b.args(name, text, clock.serverTime(b.notAfter))...)}
}

// NoRetry prevents go-redis' cluster client from repeating a command after a lost connection or a timeout.
func (command) NoRetry() bool { return true }

// parse parses the reply and updates the clock.
func (c command) parse(clock *serverClock) (reply, error) {
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
