// Package observe reports decisions: the busiest and the most denied keys, a stream for
// subscribers, and a sample of denials for the log. An [Observer] reads each [decide.Result] after
// the decision. Its work is bounded, and it never waits for a reader.
package observe

import (
	"context"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Options configures an [Observer].
type Options struct {
	// TopKeys is the number of keys in each sketch; 0 disables them.
	TopKeys int
	// KeyHashSecret, if not empty, replaces keys by their hashes in reports.
	KeyHashSecret []byte
	// Replica names this process in decisions.
	Replica string
	// LogDenial, if not nil, receives the denials of a fraction DenialShare of all keys, from 0 to
	// 1, at most DenialsPerSecond of them.
	LogDenial        func(*Denial)
	DenialShare      float64
	DenialsPerSecond int
}

// An Observer observes the decisions of a process. It is safe for concurrent use.
type Observer struct {
	options     Options
	top         *topKeys // nil: none
	denials     denialLog
	subscribers subscribers
}

// New returns an Observer. [Observer.Run] must be running to age its counts.
func New(o Options) *Observer {
	observer := &Observer{options: o, denials: denialLog{maxHash: keysample.MaxHash(o.DenialShare), rate: perSecondLimit{perSecond: int64(o.DenialsPerSecond)}}}
	if o.TopKeys > 0 {
		observer.top = newTopKeys(o.TopKeys)
	}
	return observer
}

// Run ages the counts of the busiest keys, and adapts the sample to the rate of requests, until ctx
// ends.
func (o *Observer) Run(ctx context.Context) {
	if o.top == nil {
		return
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for second := 1; ; second++ {
		select {
		case <-ticker.C:
			if second%int(windowLength/time.Second) == 0 {
				o.top.beginWindow(time.Now()) // before adapt, so that the new window has the weight of additions in progress
			}
			o.top.hitSampler.adapt()
			o.top.deniedSampler.adapt()
		case <-ctx.Done():
			return
		}
	}
}

// Observe observes a decided request. It does not retain r.
func (o *Observer) Observe(r *decide.Result) {
	subscribers := o.subscribers.list()
	logsDenials := o.options.LogDenial != nil && o.denials.maxHash > 0
	if o.top == nil && len(subscribers) == 0 && !logsDenials {
		return
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		denying := -1
		if !d.EndsLease {
			denying = d.DenyingIndex()
		}
		if o.top != nil && len(d.Verdicts) > 0 && !d.EndsLease {
			o.top.add(r.Key(i), d, denying >= 0)
		}
		if denying >= 0 && logsDenials {
			o.logDenial(r, i, denying)
		}
		if len(subscribers) > 0 {
			o.publish(subscribers, r, i, denying)
		}
	}
}

func (o *Observer) hash(key string) string { return descriptors.KeyHash(o.options.KeyHashSecret, key) }

// keyOf returns the key of descriptor i. A descriptor without a limit has a key too, for the stream
// of decisions.
func keyOf(r *decide.Result, i int) string {
	if key := r.Key(i); key != "" {
		return key
	}
	d := &r.Decisions[i]
	return descriptors.Key(d.Domain, d.Rule, d.Entries)
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
