package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Bounds of the stream.
const (
	maxSubscribers = 16
	maxPerSecond   = 1000    // decisions of one subscription
	queueSize      = 256     // decisions that a subscriber has not received yet
	queueBytes     = 4 << 20 // of their domains and keys, if there are several
)

// errTooManySubscribers is the error of [Observer.Subscribe] beyond maxSubscribers.
var errTooManySubscribers = fmt.Errorf("%d subscribers already: close another stream first", maxSubscribers)

// The outcomes of a decision, see [api.Decision].
const (
	outcomeAllowed   = "allowed"
	outcomeDenied    = "denied"    // by a limit, in shadow mode too
	outcomeUndecided = "undecided" // the store failed
)

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

// subscribers are the subscriptions of an Observer.
type subscribers struct {
	all     atomic.Pointer[[]*subscription] // read by list; replaced, never modified
	mu      sync.Mutex                      // guards changes of all
	dropped atomic.Int64
}

// Subscribe returns a stream of the decisions that f selects. It drops and counts decisions if the
// queue of the subscription is full, or beyond maxPerSecond.
func (o *Observer) Subscribe(f api.Filter) (*api.Subscription, error) {
	s := &subscription{
		filter: f, maxHash: keysample.MaxHash(cmp.Or(f.Sample, 1)), queue: make(chan api.Decision, queueSize), owner: &o.subscribers,
		rate: perSecondLimit{perSecond: maxPerSecond},
	}
	o.subscribers.mu.Lock()
	defer o.subscribers.mu.Unlock()
	all := o.subscribers.list()
	if len(all) >= maxSubscribers {
		return nil, errTooManySubscribers
	}
	all = append(slices.Clip(all), s)
	o.subscribers.all.Store(&all)
	return &api.Subscription{C: s.queue, Dropped: s.dropped.Load, Close: s.close}, nil
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

// publish sends descriptor i to the subscriptions that select it.
func (o *Observer) publish(all []*subscription, r *decide.Result, i, denying int) {
	d := &r.Decisions[i]
	outcome := outcomeOf(d, denying)
	var hash uint64 // 0: not yet computed
	var made *api.Decision
	now := time.Now()
	for _, s := range all {
		if !selects(&s.filter, d, outcome) {
			continue
		}
		if hash == 0 {
			hash = keysample.Hash(r, i)
		}
		if hash > s.maxHash {
			continue
		}
		s.send(now, o.sizeOf(d), func() *api.Decision {
			if made == nil {
				made = o.decision(now, r, i, denying, outcome)
			}
			return made
		})
	}
}

// sizeOf returns the bytes of the domain and the key of d in an [api.Decision].
func (o *Observer) sizeOf(d *decide.Decision) int {
	size := len(d.Domain)
	if len(o.options.KeyHashSecret) == 0 {
		for _, e := range d.Entries {
			size += len(e.Key) + len(e.Value)
		}
	}
	return size
}

func outcomeOf(d *decide.Decision, denying int) string {
	switch {
	case denying >= 0 || d.Outcome == decide.Denied:
		return outcomeDenied
	case d.Outcome == decide.Undecided:
		return outcomeUndecided
	}
	return outcomeAllowed
}

// selects reports whether f selects d, apart from the sample.
func selects(f *api.Filter, d *decide.Decision, outcome string) bool {
	if f.Domain != "" && f.Domain != d.Domain || f.Rule != "" && f.Rule != d.RuleName() || f.Outcome != "" && f.Outcome != outcome {
		return false
	}
	key, value := f.Entry[0], f.Entry[1]
	if key == "" {
		return true
	}
	return slices.ContainsFunc(d.Entries, func(e descriptors.Entry) bool {
		return e.Key == key && (value == "" || e.Value == value)
	})
}

// decision copies descriptor i, so that the result does not refer to r, which is reused.
func (o *Observer) decision(now time.Time, r *decide.Result, i, denying int, outcome string) *api.Decision {
	d := &r.Decisions[i]
	made := &api.Decision{
		Time: now, Domain: strings.Clone(d.Domain), Rule: d.RuleName(), Key: []explain.Entry{}, KeyHash: o.hash(keyOf(r, i)), Hits: d.Hits,
		Outcome: outcome,
		Reason:  d.Reason.String(), Enforced: r.Enforces(d), Replica: o.options.Replica, RulesVersion: r.Rules.Version(),
	}
	if len(o.options.KeyHashSecret) == 0 {
		for _, e := range d.Entries {
			made.Key = append(made.Key, explain.Entry{strings.Clone(e.Key), strings.Clone(e.Value)})
		}
	}
	limit := denying
	if decided := d.DecidingLimit; limit < 0 && decided != nil {
		limit = slices.IndexFunc(d.Limits, func(l descriptors.RateLimit) bool { return l.Limit == decided.Limit })
	}
	var v limiters.Verdict
	if limit >= 0 {
		v = d.Verdicts[limit]
		made.Limit, made.Algorithm, made.By = d.LimitLabel(limit), d.Limits[limit].Algorithm(), v.By.String()
	}
	made.Used, made.Remaining, made.RetryAfter, made.ResetAfter = v.Used, v.Remaining, explain.WaitText(v.RetryAfter), v.ResetAfter.String()
	return made
}

// Stats are the counts of an Observer since its start.
type Stats struct {
	Subscribers int64 // now
	Dropped     int64 // decisions that subscribers did not get
	Suppressed  int64 // denials that the log did not get, because too many came in one second
}

// Stats returns the counts.
func (o *Observer) Stats() Stats {
	return Stats{
		Subscribers: int64(len(o.subscribers.list())), Dropped: o.subscribers.dropped.Load(), Suppressed: o.denials.suppressed.Load(),
	}
}
