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
// operations until that call has ended. The lock of its queue guards it.
type breaker struct {
	failures int       // the number of consecutive failures
	last     time.Time // when the last failure was recorded
}

func (b *breaker) open() bool { return b.failures >= failuresToOpen }

// rejects reports whether to reject an operation. busy reports whether a call is in flight.
func (b *breaker) rejects(busy bool) bool {
	return b.open() && (busy || time.Since(b.last) < openDuration)
}

// record records the result of a call. waitLimit is the time from its start to its deadline, at
// most timeout, which is STORE_TIMEOUT. Timeouts soon after a failure do not count, because they
// may have the same cause.
func (b *breaker) record(err error, waitLimit, timeout time.Duration) {
	if errors.Is(err, errLate) {
		return // the node replied; only the clients' deadlines were too short, so the next call decides
	}
	switch healthOf(err, min(waitLimit, time.Since(b.last)), timeout) {
	case healthy:
		b.failures = 0
	case unhealthy:
		b.failures++
		b.last = time.Now()
	}
}

// A callHealth is the health of a node according to the result of one call.
type callHealth int

const (
	healthUnknown callHealth = iota // the result does not show it
	healthy
	unhealthy
)

// healthOf returns the health according to err, the result of a call. After a timeout, waited is
// how long the call waited for the node, without the time before the last failure. The health is
// unknown after a cancellation, a panic, a reply about this call alone, and a timeout if waited is
// less than a third of timeout, which is STORE_TIMEOUT.
func healthOf(err error, waited, timeout time.Duration) callHealth {
	switch {
	case err == nil:
		return healthy
	case errors.Is(err, context.Canceled), errors.Is(err, limiters.ErrPanic):
		return healthUnknown
	case isTimeout(err):
		if waited < timeout/3 {
			return healthUnknown
		}
	case concernsOneCall(err):
		return healthUnknown
	}
	return unhealthy
}

// concernsOneCall reports whether err is a reply about the keys or the command of one call rather
// than about the node.
func concernsOneCall(err error) bool {
	reply := replyOf(err)
	if reply == nil {
		return false
	}
	for _, prefix := range []string{"ERR ", "TRYAGAIN ", "MOVED ", "ASK ", "CROSSSLOT ", "CLUSTERDOWN Hash slot not served"} {
		if strings.HasPrefix(reply.Error(), prefix) {
			return true
		}
	}
	return false
}

// replyOf returns the Redis error reply that err wraps, or nil.
func replyOf(err error) redis.Error {
	var reply redis.Error
	errors.As(err, &reply)
	return reply
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}
