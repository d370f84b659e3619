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

// A scriptCaller calls the script on one Redis server, or in a cluster on the server of the keys.
// The deadlines of calls are in the time of the server.
type scriptCaller struct {
	client redis.UniversalClient // the client of the server or of its cluster
	clock  *serverClock
}

func newScriptCaller(client redis.UniversalClient) scriptCaller {
	return scriptCaller{client: client, clock: &serverClock{start: time.Now()}}
}

// A script is Lua source with the digest under which Redis caches it.
type script struct{ source, digest string }

var batchScript = sync.OnceValue(func() script {
	source := redisscripts.Source()
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
})

// call calls the script for a batch. It repeats a call only if the call certainly charged nothing.
// The second call carries the source if the server did not have the script, and a new deadline if
// the clock was wrong or unknown.
func (s scriptCaller) call(ctx context.Context, b *batch) (reply, error) {
	r, err := s.callOnce(ctx, b)
	if b.rejectedTooEarly(r, err) {
		return s.callOnce(ctx, b)
	}
	return r, err
}

// rejectedTooEarly reports whether the script rejected the call as late although b.notAfter has not
// passed by the local clock. The serverClock was wrong or unknown, and the reply has corrected it.
func (b *batch) rejectedTooEarly(r reply, err error) bool {
	return err == nil && r.isLate() && time.Now().Before(b.notAfter)
}

func (s scriptCaller) callOnce(ctx context.Context, b *batch) (reply, error) {
	r, err := s.eval(ctx, "evalsha", batchScript().digest, b)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.eval(ctx, "eval", batchScript().source, b)
	}
	return r, err
}

// ping calls the script without operations and returns the duration.
func (s scriptCaller) ping(ctx context.Context) (time.Duration, error) {
	b := newBatch(time.Time{}, time.Time{})
	defer b.release()
	start := time.Now()
	_, err := s.callOnce(ctx, b)
	return time.Since(start), err
}

// eval sends evalsha with the digest of the script, or eval with its source.
func (s scriptCaller) eval(ctx context.Context, evalOrEvalsha, sourceOrDigest string, b *batch) (reply, error) {
	cmd := s.newCommand(ctx, evalOrEvalsha, sourceOrDigest, b)
	if err := s.client.Process(ctx, cmd); err != nil {
		return reply{}, err
	}
	return s.parse(cmd)
}

// A command calls the script. It may charge hits, so it is sent only once.
type command struct{ *redis.Cmd }

// NoRetry prevents go-redis' cluster client from repeating a command after a lost connection or a
// timeout.
func (command) NoRetry() bool { return true }

func (s scriptCaller) newCommand(ctx context.Context, evalOrEvalsha, sourceOrDigest string, b *batch) command {
	return command{redis.NewCmd(ctx, b.commandArgs(evalOrEvalsha, sourceOrDigest, s.clock.serverTime(b.notAfter))...)}
}

// parse parses the reply and updates the clock.
func (s scriptCaller) parse(cmd command) (reply, error) {
	value, err := cmd.Result()
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(value)
	if err == nil {
		s.clock.update(r.time)
	}
	return r, err
}
