// Package decisionstream passes decisions to subscribers, and a sample of the denials to the log.
// It never waits for a subscriber.
package decisionstream

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
)

// Options configures a [Stream].
type Options struct {
	// KeyHashSecret, if not empty, replaces keys by their hashes in decisions.
	KeyHashSecret []byte
	// Replica names this process in decisions.
	Replica string
	// LogDenial, if not nil, receives the denials of DeniedKeysFraction of all keys, from 0 to 1,
	// at most DenialsPerSecond of them.
	LogDenial          func(*Denial)
	DeniedKeysFraction float64
	DenialsPerSecond   int
}

// A Stream is the stream of the decisions of a process. It is safe for concurrent use.
type Stream struct {
	options     Options
	denials     denialLog
	subscribers subscribers
}

// New returns a Stream without subscribers.
func New(o Options) *Stream {
	return &Stream{options: o, denials: denialLog{
		maxHash: keysample.MaxHash(o.DeniedKeysFraction), rate: perSecondLimit{perSecond: int64(o.DenialsPerSecond)},
	}}
}

// Subscribe returns a stream of the decisions that f selects. It drops and counts decisions if the
// queue of the subscription is full, or beyond maxPerSecond.
func (s *Stream) Subscribe(f api.Filter) (*api.Subscription, error) {
	added := &subscription{
		filter: f, maxHash: keysample.MaxHash(cmp.Or(f.Sample, 1)), queue: make(chan api.Decision, queueSize), owner: &s.subscribers,
		rate: perSecondLimit{perSecond: maxPerSecond},
	}
	s.subscribers.mu.Lock()
	defer s.subscribers.mu.Unlock()
	all := s.subscribers.list()
	if len(all) >= maxSubscribers {
		return nil, errTooManySubscribers
	}
	all = append(slices.Clip(all), added)
	s.subscribers.all.Store(&all)
	return &api.Subscription{C: added.queue, Dropped: added.dropped.Load, Close: added.close}, nil
}

// Publish passes the decisions of a request to the subscribers that select them, and its denials to
// the log. It does not retain r.
func (s *Stream) Publish(r *decide.Result) {
	receivers := s.subscribers.list()
	logsDenials := s.options.LogDenial != nil && s.denials.maxHash > 0
	if len(receivers) == 0 && !logsDenials {
		return
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		denying := -1
		if !d.EndsLease() {
			denying = d.DenyingLimitIndex()
		}
		if denying >= 0 && logsDenials {
			s.logDenial(r, i, denying)
		}
		if len(receivers) > 0 {
			s.publishDecision(receivers, r, i, denying)
		}
	}
}

// publishDecision sends descriptor i to the subscriptions that select it.
func (s *Stream) publishDecision(all []*subscription, r *decide.Result, i, denying int) {
	d := &r.Decisions[i]
	outcome := outcomeOf(d, denying)
	var hash uint64 // 0: not yet computed
	var made *api.Decision
	now := time.Now()
	for _, subscriber := range all {
		if !selects(&subscriber.filter, d, outcome) {
			continue
		}
		if hash == 0 {
			hash = keysample.Hash(d.Plan)
		}
		if hash > subscriber.maxHash {
			continue
		}
		subscriber.send(now, s.sizeOf(d), func() *api.Decision {
			if made == nil {
				made = s.decision(now, r, i, denying, outcome)
			}
			return made
		})
	}
}

// sizeOf returns the bytes of the domain and the key of d in an [api.Decision].
func (s *Stream) sizeOf(d *decide.Decision) int {
	size := len(d.Domain)
	if len(s.options.KeyHashSecret) == 0 {
		for _, e := range d.Entries {
			size += len(e.Key) + len(e.Value)
		}
	}
	return size
}

// The outcomes of a decision, see [api.Decision].
const (
	outcomeAllowed   = "allowed"
	outcomeDenied    = "denied"    // by a limit, in shadow mode too
	outcomeUndecided = "undecided" // the store failed
)

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
func (s *Stream) decision(now time.Time, r *decide.Result, i, denying int, outcome string) *api.Decision {
	d := &r.Decisions[i]
	made := &api.Decision{
		Time: now, Domain: strings.Clone(d.Domain), Rule: d.RuleName(), Key: []explain.Entry{},
		KeyHash: descriptors.KeyHash(s.options.KeyHashSecret, keyOf(d.Plan)), Hits: d.Hits, Outcome: outcome, Reason: d.Reason.String(),
		Enforced: r.Enforced(d), Replica: s.options.Replica, RulesVersion: r.Rules.Version(),
	}
	if len(s.options.KeyHashSecret) == 0 {
		for _, e := range d.Entries {
			made.Key = append(made.Key, explain.Entry{strings.Clone(e.Key), strings.Clone(e.Value)})
		}
	}
	var v limiters.Verdict
	if _, deciding := d.DecidingLimit(); denying >= 0 || deciding != nil {
		v = d.Verdicts[d.DecidingLimitIndex]
		made.Limit, made.Algorithm, made.By = d.LimitLabel(d.DecidingLimitIndex), d.Limits[d.DecidingLimitIndex].Algorithm(), v.By.String()
	}
	made.Used, made.Remaining, made.RetryAfter, made.ResetAfter = v.Used, v.Remaining, explain.WaitText(v.RetryAfter), v.ResetAfter.String()
	return made
}

// keyOf returns the key of p. A descriptor without a limit has a key too, for the stream of
// decisions.
func keyOf(p *decide.Plan) string {
	if p.Key != "" {
		return p.Key
	}
	return descriptors.Key(p.Domain, p.Rule, p.Entries)
}

// Stats are the counts of a Stream since its start.
type Stats struct {
	Subscribers int64 // now
	Dropped     int64 // decisions that subscribers did not get
	Suppressed  int64 // denials that the log did not get, because too many came in one second
}

// Stats returns the counts.
func (s *Stream) Stats() Stats {
	return Stats{
		Subscribers: int64(len(s.subscribers.list())), Dropped: s.subscribers.dropped.Load(), Suppressed: s.denials.suppressed.Load(),
	}
}

// A perSecondLimit bounds the events in a second. The lock must be held.
type perSecondLimit struct {
	perSecond int64
	second    int64 // in Unix time
	events    int64 // in this second
}

func (l *perSecondLimit) admit(now time.Time) bool {
	if second := now.Unix(); second != l.second {
		l.second, l.events = second, 0
	}
	if l.events >= l.perSecond {
		return false
	}
	l.events++
	return true
}
