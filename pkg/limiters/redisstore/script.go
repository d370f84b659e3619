package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"time"

	"github.com/redis/go-redis/v9"
)

// A script is Lua source and the digest that Redis knows it by.
type script struct{ source, digest string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script for a batch, not after the deadline of ctx by the clock. What has not run is sent again, once: to a
// server that does not know the script with its source, and to one whose time was not known with its time.
func (s script) run(ctx context.Context, c processor, clock *clock, b *batch) (reply, error) {
	r, err := s.once(ctx, c, clock, b)
	if err == nil && r.late() {
		return s.once(ctx, c, clock, b)
	}
	return r, err
}

func (s script) once(ctx context.Context, c processor, clock *clock, b *batch) (reply, error) {
	r, err := call(ctx, c, clock, "evalsha", s.digest, b)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return call(ctx, c, clock, "eval", s.source, b)
	}
	return r, err
}

// greet runs the script for no hits, and tells how long it took: what a call takes at least, unless the connection had to be
// made, or the script to be sent.
func (s script) greet(ctx context.Context, c processor, clock *clock) (time.Duration, error) {
	b := newBatch(time.Time{}, nil, nil)
	start := time.Now()
	_, err := s.once(ctx, c, clock, b)
	return time.Since(start), err
}

func call(ctx context.Context, c processor, clock *clock, name, text string, b *batch) (reply, error) {
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

// A command charges hits, so it is sent once.
type command struct{ *redis.Cmd }

func newCommand(ctx context.Context, clock *clock, name, text string, b *batch) command {
	return command{redis.NewCmd(ctx, b.args(name, text, clock.notAfter(ctx))...)}
}

// NoRetry tells go-redis, whose cluster client would otherwise resend after a lost connection or a time-out.
func (command) NoRetry() bool { return true }

// reply is what came back, from which the clock learns.
func (c command) reply(clock *clock) (reply, error) {
	value, err := c.Result()
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(value)
	if err == nil {
		clock.learn(r.server)
	}
	return r, err
}
