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

// ErrBreakerOpen is returned by a Take that the breaker rejects after consecutive failures. Nothing
// was charged.
var ErrBreakerOpen = limiters.Uncharged(errors.New("the last calls to Redis failed; the next attempt is made shortly"))

const (
	// failuresToOpen is the number of consecutive failures that open the breaker. Because calls are
	// made one at a time, the breaker opens after at most failuresToOpen timeouts.
	failuresToOpen = 5
	// openDuration is how long the breaker stays open. Then the next operation tries one call, so
	// under load the breaker notices within openDuration plus one timeout that Redis works again.
	openDuration = 200 * time.Millisecond
)

// A breaker rejects operations while Redis fails, so that they need not wait for a timeout. It
// opens after consecutive failures. After openDuration it lets one call pass and rejects all other
// operations until that call has ended. queue.mu guards it.
type breaker struct {
	timeout  time.Duration // of a call
	failures int           // the number of consecutive failures
	last     time.Time     // when the last failure was recorded
}

func (b *breaker) open() bool { return b.failures >= failuresToOpen }

// rejects reports whether to reject an operation. busy reports whether a call is in flight.
func (b *breaker) rejects(busy bool) bool {
	return b.open() && (busy || time.Since(b.last) < openDuration)
}

// record records the result of a call.
func (b *breaker) record(err error) {
	switch {
	case err == nil, errors.Is(err, errLate), concernsOneCall(err):
		b.failures = 0
	case b.isFailure(err):
		b.failures++
		b.last = time.Now()
	}
}

// isFailure reports whether err means that Redis fails. A cancellation or a panic does not. A
// timeout within a third of b.timeout after another failure does not either, because both may have
// one cause.
func (b *breaker) isFailure(err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, limiters.ErrPanic):
		return false
	case isTimeout(err):
		return time.Since(b.last) >= b.timeout/3
	default:
		return true
	}
}

// concernsOneCall reports whether err is a reply about the keys or the command of one call rather
// than about the node. A reply without the hash slots of a cluster is not.
func concernsOneCall(err error) bool {
	reply := replyOf(err)
	if reply == nil || errors.Is(err, errNoHashSlots) {
		return false
	}
	for _, prefix := range []string{"ERR ", "TRYAGAIN ", "MOVED ", "ASK ", "CROSSSLOT ", "CLUSTERDOWN Hash slot not served"} {
		if strings.HasPrefix(reply.Error(), prefix) {
			return true
		}
	}
	return false
}

// redisReplied reports whether a failed call got a reply, so that its connection is intact.
func redisReplied(err error) bool { return errors.Is(err, errLate) || replyOf(err) != nil }

// replyOf returns the Redis error reply that err wraps, or nil.
func replyOf(err error) redis.Error {
	reply, _ := errors.AsType[redis.Error](err)
	return reply
}

func isTimeout(err error) bool {
	if n, ok := errors.AsType[net.Error](err); ok && n.Timeout() {
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}
