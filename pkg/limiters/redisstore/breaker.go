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
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// ErrBreakerOpen is the error of a Take that is rejected at once, because the last calls to Redis have all failed. It has
// charged nothing.
var ErrBreakerOpen = limiters.Uncharged(errors.New("redisstore: the last calls to Redis failed; the next attempt is made shortly"))

const (
	// failuresToOpen is the number of consecutive failures that open the breaker. Calls are made one at a time, so this
	// takes at most as many timeouts.
	failuresToOpen = 5
	// openDuration is how long the breaker stays open, and so the longest delay before recovery is noticed.
	openDuration = 200 * time.Millisecond
)

// A breaker rejects hits while Redis does not answer, so that they need not wait for a timeout. It opens after consecutive
// failures. After openDuration, one call is tried and all other hits are rejected until it has ended. The breaker is part of
// a queue, whose lock guards it.
type breaker struct {
	failures int       // consecutive
	last     time.Time // when the last failure was recorded
}

func (b *breaker) open() bool { return b.failures >= failuresToOpen }

// rejects reports whether to reject a hit; busy is whether a call is under way.
func (b *breaker) rejects(busy bool) bool {
	return b.open() && (busy || time.Since(b.last) < openDuration)
}

// record records the result of a call, which had at most budget.
//
// Under load a call may have little of its budget left. Such timeouts count at most once per full budget without an answer.
func (b *breaker) record(err error, budget, timeout time.Duration) {
	if errors.Is(err, errLate) {
		return // the node answered: only the clients' deadlines were too short
	}
	switch judge(err, min(budget, time.Since(b.last)), timeout) {
	case success:
		b.failures = 0
	case failure:
		b.failures++
		b.last = time.Now()
	}
}

// An outcome is the meaning of a call's result for the node.
type outcome int

const (
	neutral outcome = iota // the result says nothing about the node
	success
	failure
)

// judge returns what err means for the node, which had some time to answer. timeout is the time that it should have. A
// timeout is neutral if the client gave too little time; so are cancellation, bugs and replies about this one call.
func judge(err error, had, timeout time.Duration) outcome {
	switch {
	case err == nil:
		return success
	case errors.Is(err, context.Canceled), errors.Is(err, split.ErrPanic):
		return neutral
	case isTimeout(err):
		if had < timeout/3 {
			return neutral
		}
	case concernsOneCall(err):
		return neutral
	}
	return failure
}

// concernsOneCall reports whether err is a reply that concerns the keys or the command of one call, not the whole node.
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

// replyOf returns the error reply of Redis that err wraps, or nil if there is none.
func replyOf(err error) redis.Error {
	var reply redis.Error
	errors.As(err, &reply)
	return reply
}

// isTimeout reports whether err is a timeout. errLate is one: the call had no time left when it arrived.
func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, errLate) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}
