package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errNoHosts is returned for a cluster that reports nodes without a host, which go-redis cannot
// use.
var errNoHosts = errors.New("the cluster announces no host of its nodes: set cluster-preferred-endpoint-type to ip or hostname")

var errNoSlots = errors.New("the cluster does not report its hash slots")

// A slotLearner guards the attempts to learn the hash slots of a cluster. While they are unknown,
// its breaker rejects operations that would wait for them.
type slotLearner struct {
	unknown atomic.Bool // the last attempt failed

	mu      sync.Mutex
	breaker breaker
	trying  bool // an attempt is under way, and the breaker is open
}

// try calls lookUp, which learns the hash slots if they are unknown. While the breaker is open, try
// calls it for one caller at a time, and returns ErrBreakerOpen to all others.
func (l *slotLearner) try(ctx context.Context, lookUp func() error) error {
	if l.unknown.Load() {
		end, err := l.begin()
		if err != nil {
			return err
		}
		defer end()
	}
	budget := untilDeadline(ctx, l.breaker.timeout)
	err := lookUp()
	if err != nil || l.unknown.Load() {
		l.record(err, budget)
	}
	return err
}

// begin begins an attempt, unless the breaker rejects it. The caller must call end when the attempt
// has ended.
func (l *slotLearner) begin() (end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.breaker.rejects(l.trying) {
		return nil, ErrBreakerOpen
	}
	if !l.breaker.open() {
		return func() {}, nil
	}
	l.trying = true
	return l.endTrying, nil
}

func (l *slotLearner) endTrying() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trying = false
}

// record records the result of an attempt. budget is the time from its start to its deadline. If
// this was too short, a timeout does not show that the cluster fails.
func (l *slotLearner) record(err error, budget time.Duration) {
	if isTimeout(err) && budget < l.breaker.timeout/3 {
		return
	}
	if replyOf(err) != nil {
		err = errNoSlots // a reply without the hash slots is a failure too
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.breaker.record(err)
	l.unknown.Store(l.breaker.failures > 0)
}
