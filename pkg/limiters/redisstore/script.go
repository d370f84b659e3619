package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

// A script is Lua source and the digest that Redis knows it by.
type script struct{ source, digest string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script by its digest. A server that does not know it has run nothing, and is sent the source.
func (s script) run(ctx context.Context, c processor, b *batch) (any, error) {
	reply, err := call(ctx, c, "evalsha", s.digest, b)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = call(ctx, c, "eval", s.source, b)
	}
	return reply, err
}

func call(ctx context.Context, c processor, name, text string, b *batch) (any, error) {
	cmd := newCommand(ctx, name, text, b)
	if err := c.Process(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// A processor sends a command to one Redis, or to the node of a cluster that has the command's keys.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A command charges hits, so it is sent once.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, name, text string, b *batch) command {
	args := make([]any, 0, 3+len(b.keys)+len(b.args))
	args = append(args, name, text, len(b.keys))
	for _, key := range b.keys {
		args = append(args, key)
	}
	return command{redis.NewCmd(ctx, append(args, b.args...)...)}
}

// NoRetry tells go-redis, whose cluster client would otherwise resend after a lost connection or a time-out.
func (command) NoRetry() bool { return true }
