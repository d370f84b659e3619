package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrBroken is the error of a Take that is turned away at once: the last calls have all failed, and the next is tried a
// little later. It has charged nothing.
var ErrBroken = errors.New("redisstore: Redis has failed: it is tried again shortly")

const (
	// failuresToBreak are the calls that fail in succession before hits are turned away. One at a time, they take so many
	// times the timeout at most.
	failuresToBreak = 5
	// pauseOfBroken is how long they are. It is what a Redis that is back is noticed late by.
	pauseOfBroken = 200 * time.Millisecond
)

// A breaker turns hits away while Redis does not answer, so that nobody waits for what has just failed: after some failures
// in succession it is broken, for a pause; then one call is tried, and the others are turned away until it has come back.
// It is part of a lane, which makes one call at a time, and is guarded by the lane's lock.
type breaker struct {
	failed int       // calls in succession
	last   time.Time // when the last of them had failed
}

func (b *breaker) broken() bool { return b.failed >= failuresToBreak }

// refuses tells whether a hit is turned away; busy is whether a call is under way.
func (b *breaker) refuses(busy bool) bool {
	return b.broken() && (busy || time.Since(b.last) < pauseOfBroken)
}

// record tells of a call that has ended with err, and of how long those had in all, of the timeout, who waited for it. They
// may have waited for other calls first, and under load they have: so of calls that are short for that, each a time-out, one
// counts when as much time has passed without an answer as it would have needed by itself.
func (b *breaker) record(err error, had, timeout time.Duration) {
	switch judge(err, min(had, time.Since(b.last)), timeout) {
	case wentWell:
		b.failed = 0
	case wentWrong:
		b.failed++
		b.last = time.Now()
	}
}

// An outcome is what a call says of the Redis that it was for.
type outcome int

const (
	saysNothing outcome = iota
	wentWell
	wentWrong
)

// judge tells what a call that ended with err says of Redis, which had so long to answer, of the timeout that it has by
// right. A client that went away, or that gave it no time, says nothing of it; nor does an error that is an answer to this
// one call. Those that are an answer to all have names.
func judge(err error, had, timeout time.Duration) outcome {
	switch {
	case err == nil:
		return wentWell
	case errors.Is(err, context.Canceled), errors.Is(err, limiters.ErrPanic):
		return saysNothing
	case isTimeout(err):
		if had < timeout/3 {
			return saysNothing
		}
	case isAnswer(err):
		return saysNothing
	}
	return wentWrong
}

func isAnswer(err error) bool {
	answer := answerOf(err)
	return answer != nil && strings.HasPrefix(answer.Error(), "ERR ")
}

// answerOf is the answer of Redis that an error is, nil if none came.
func answerOf(err error) redis.Error {
	var answer redis.Error
	errors.As(err, &answer)
	return answer
}

// isTimeout tells of errLate too: Redis says it to a call that had no time to get there.
func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}
