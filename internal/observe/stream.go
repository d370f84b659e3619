package observe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Bounds of the stream.
const (
	MaxSubscribers = 16
	MaxPerSecond   = 1000 // decisions of one subscription
	queueSize      = 256  // decisions that a subscriber has not received yet
)

// Errors of [Observer.Subscribe].
var (
	ErrTooManySubscribers = fmt.Errorf("%d subscribers already: close another stream first", MaxSubscribers)
	ErrUnknownOutcome     = errors.New("unknown outcome: write allowed, denied or undecided")
	ErrNotObserved        = errors.New("this process observes no decisions")
)

// The outcomes of a [Decision].
const (
	Allowed   = "allowed"
	Denied    = "denied"    // by a limit, in shadow mode too
	Undecided = "undecided" // the store failed
)

// A Filter selects decisions. The zero Filter selects all of them.
type Filter struct {
	Domain, Rule string            // "": all
	Outcome      string            // Allowed, Denied or Undecided; "": all
	Entry        descriptors.Entry // the descriptor contains it; an empty value stands for any, an empty key for all descriptors
	Sample       float64           // the share of the keys, from 0 to 1, by a hash of the key; 0: all
}

// A Decision is a decided descriptor.
type Decision struct {
	Time         time.Time
	Domain, Rule string
	Key          []descriptors.Entry // nil if keys are hidden
	KeyHash      string              // see [descriptors.KeyHash]
	Hits         int64               // 0 peeks, less than 0 refunds
	Outcome      string
	Reason       string // of package decide
	Enforced     bool   // false: a denial that shadow mode or quota mode let pass
	Limit        string // that explains the outcome: its name or its index; "" without one
	Algorithm    string // of this limit
	Used         int64  // of this limit, as the fields below
	Remaining    int64
	RetryAfter   time.Duration // of a denial; negative: the hits can never fit
	ResetAfter   time.Duration
	By           string // what decided: store, cache, policy or share
	Replica      string
	RulesVersion string
}

// A Subscription receives decisions.
type Subscription struct {
	C <-chan Decision // closed by Close

	filter  Filter
	keep    uint64
	queue   chan Decision
	dropped atomic.Int64
	of      *subscribers

	mu     sync.Mutex // of the fields below, and of sends
	rate   rate
	closed bool
}

// subscribers are the subscriptions of an Observer.
type subscribers struct {
	all     atomic.Pointer[[]*Subscription] // nil: none
	mu      sync.Mutex                      // of changes
	dropped atomic.Int64
}

// Subscribe returns a stream of the decisions that f selects. It drops and counts decisions if the queue of the subscription is
// full, or beyond MaxPerSecond. The caller must close the subscription.
func (o *Observer) Subscribe(f Filter) (*Subscription, error) {
	if o == nil {
		return nil, ErrNotObserved
	}
	if f.Outcome != "" && f.Outcome != Allowed && f.Outcome != Denied && f.Outcome != Undecided {
		return nil, ErrUnknownOutcome
	}
	if !(f.Sample >= 0 && f.Sample <= 1) {
		return nil, fmt.Errorf("sample %v: write a number from 0 to 1", f.Sample)
	}
	if f.Sample == 0 {
		f.Sample = 1
	}
	queue := make(chan Decision, queueSize)
	s := &Subscription{C: queue, queue: queue, filter: f, keep: thresholdOf(f.Sample), of: &o.subscribers, rate: rate{perSecond: MaxPerSecond}}
	return s, o.subscribers.change(func(all []*Subscription) ([]*Subscription, error) {
		if len(all) >= MaxSubscribers {
			return nil, ErrTooManySubscribers
		}
		return append(all, s), nil
	})
}

// change replaces the list of subscriptions by an edited copy.
func (s *subscribers) change(edit func([]*Subscription) ([]*Subscription, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Subscription
	if current := s.all.Load(); current != nil {
		all = slices.Clone(*current)
	}
	all, err := edit(all)
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		s.all.Store(nil)
	default:
		s.all.Store(&all)
	}
	return nil
}

// Close ends the subscription and closes C. It is idempotent.
func (s *Subscription) Close() {
	_ = s.of.change(func(all []*Subscription) ([]*Subscription, error) {
		return slices.DeleteFunc(all, func(other *Subscription) bool { return other == s }), nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
}

// Dropped returns the number of dropped decisions.
func (s *Subscription) Dropped() int64 { return s.dropped.Load() }

// send queues the decision that made returns, or drops it.
func (s *Subscription) send(now time.Time, made func() *Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case len(s.queue) == cap(s.queue) || !s.rate.admit(now):
		s.dropped.Add(1)
		s.of.dropped.Add(1)
	default:
		s.queue <- *made() // nobody else sends, so there is room
	}
}

// publish sends descriptor i to the subscriptions that select it.
func (o *Observer) publish(all []*Subscription, r *decide.Result, i, denying int) {
	d := &r.Decisions[i]
	outcome := outcomeOf(d, denying)
	var key string
	var hash uint64
	var made *Decision
	now := time.Now()
	for _, s := range all {
		if !s.filter.selects(d, outcome) {
			continue
		}
		if key == "" {
			key = keyOf(r, i)
			hash = sampleHash(key)
		}
		if hash > s.keep {
			continue
		}
		s.send(now, func() *Decision {
			if made == nil {
				made = o.decision(now, r, i, denying, outcome, key)
			}
			return made
		})
	}
}

func outcomeOf(d *decide.Decision, denying int) string {
	switch {
	case denying >= 0 || d.Outcome == decide.Denied:
		return Denied
	case d.Outcome == decide.Undecided:
		return Undecided
	}
	return Allowed
}

func (f *Filter) selects(d *decide.Decision, outcome string) bool {
	if f.Domain != "" && f.Domain != d.Domain || f.Rule != "" && f.Rule != d.RuleName() || f.Outcome != "" && f.Outcome != outcome {
		return false
	}
	if f.Entry.Key == "" {
		return true
	}
	return slices.ContainsFunc(d.Entries, func(e descriptors.Entry) bool {
		return e.Key == f.Entry.Key && (f.Entry.Value == "" || e.Value == f.Entry.Value)
	})
}

// decision copies descriptor i, so that the result does not refer to r, which is reused.
func (o *Observer) decision(now time.Time, r *decide.Result, i, denying int, outcome, key string) *Decision {
	d := &r.Decisions[i]
	made := &Decision{
		Time: now, Domain: strings.Clone(d.Domain), Rule: d.RuleName(), KeyHash: o.hash(key), Hits: d.Hits, Outcome: outcome,
		Reason: d.Reason.String(), Enforced: outcome == Denied && enforced(r, d), Replica: o.options.Replica, RulesVersion: r.Rules.Version(),
	}
	if len(o.options.Secret) == 0 {
		for _, e := range d.Entries {
			made.Key = append(made.Key, descriptors.Entry{Key: strings.Clone(e.Key), Value: strings.Clone(e.Value)})
		}
	}
	limit := denying
	if limit < 0 {
		limit = slices.IndexFunc(d.Limits, func(l descriptors.RateLimit) bool { return d.Limit != nil && l.Limit == d.Limit.Limit })
	}
	if limit >= 0 {
		v := &d.Verdicts[limit]
		made.Limit, made.Algorithm, made.By = d.LimitName(limit), d.Limits[limit].Limit.Spec().Algorithm, sourceNames[v.By]
		made.Used, made.Remaining, made.RetryAfter, made.ResetAfter = v.Used, v.Remaining, v.RetryAfter, v.ResetAfter
	}
	return made
}

var sourceNames = [...]string{limiters.ByStore: "store", limiters.ByCache: "cache", limiters.ByShare: "share", limiters.ByPolicy: "policy"}

// Stats are the counts of an Observer since its start.
type Stats struct {
	Subscribers int64 // now
	Dropped     int64 // decisions that subscribers did not get
	Suppressed  int64 // denials that the log did not get, because too many came in one second
}

// Stats returns the counts.
func (o *Observer) Stats() Stats {
	s := Stats{Dropped: o.subscribers.dropped.Load(), Suppressed: o.denials.suppressed.Load()}
	if all := o.subscribers.all.Load(); all != nil {
		s.Subscribers = int64(len(*all))
	}
	return s
}
