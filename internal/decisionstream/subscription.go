package decisionstream

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/admin/api"
)

// Bounds of the stream.
const (
	maxSubscribers = 16
	maxPerSecond   = 1000    // decisions of one subscription
	queueSize      = 256     // decisions that a subscriber has not received yet
	queueBytes     = 4 << 20 // of their domains and keys, if there are several
)

// errTooManySubscribers is the error of [Stream.Subscribe] beyond maxSubscribers.
var errTooManySubscribers = fmt.Errorf("%d subscribers already: close another stream first", maxSubscribers)

// A subscription receives decisions.
type subscription struct {
	filter  api.Filter
	maxHash uint64 // the highest sample hash
	queue   chan api.Decision
	dropped atomic.Int64
	owner   *subscribers

	mu     sync.Mutex // guards the fields below, and sends
	rate   perSecondLimit
	closed bool
	sizes  []int // of the decisions in the queue at the last send, the oldest first
}

// subscribers are the subscriptions of a Stream.
type subscribers struct {
	all     atomic.Pointer[[]*subscription] // read by list; replaced, never modified
	mu      sync.Mutex                      // guards changes of all
	dropped atomic.Int64
}

// list returns the subscriptions, which must not be modified.
func (s *subscribers) list() []*subscription {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (s *subscribers) remove(gone *subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.list()), func(other *subscription) bool { return other == gone })
	s.all.Store(&all)
}

// close ends the subscription and closes its queue. It is idempotent.
func (s *subscription) close() {
	s.owner.remove(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
}

// send queues the decision that made returns, of size bytes, or drops it.
func (s *subscription) send(now time.Time, size int, made func() *api.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case !s.hasRoom(size) || !s.rate.admit(now):
		s.dropped.Add(1)
		s.owner.dropped.Add(1)
	default:
		s.sizes = append(s.sizes, size)
		s.queue <- *made() // the lock excludes other senders, so there is room
	}
}

// hasRoom reports whether a decision of size bytes fits into the queue. An empty queue has room for
// any.
func (s *subscription) hasRoom(size int) bool {
	n := len(s.queue)
	s.sizes = slices.Delete(s.sizes, 0, len(s.sizes)-n)
	for _, queued := range s.sizes {
		size += queued
	}
	return n == 0 || n < cap(s.queue) && size <= queueBytes
}
