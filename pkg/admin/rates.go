package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Rates are over the last sampleCount-1 intervals, about 10 s.
const (
	sampleInterval = 2 * time.Second
	sampleCount    = 6
)

// rates computes rates from counters that it reads at a fixed interval.
type rates struct {
	options *Options

	mu  sync.Mutex
	all []sample // the oldest first
}

// A sample is the value of all counters at one time. The counters of rules are in the order of
// [descriptors.Rules.All].
type sample struct {
	at      time.Time
	rules   *descriptors.Rules
	hits    []hitCounts
	calls   uint64
	seconds float64
}

type hitCounts struct{ allowed, denied uint64 }

func (r *rates) run(ctx context.Context) {
	for {
		r.sample(time.Now())
		if backoff.Sleep(ctx, sampleInterval) != nil {
			return
		}
	}
}

// sample reads the counters. It drops the samples of rules that were replaced.
func (r *rates) sample(now time.Time) {
	s := sample{at: now, rules: r.options.Rules()}
	s.calls, s.seconds = r.options.StoreCalls()
	_, n := s.rules.Counts()
	s.hits = make([]hitCounts, 0, n)
	for rule := range s.rules.All() {
		allowed, denied := r.options.Hits(rule)
		s.hits = append(s.hits, hitCounts{allowed, denied})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.all); n > 0 && r.all[n-1].rules != s.rules {
		r.all = nil
	}
	if len(r.all) == sampleCount {
		r.all = slices.Delete(r.all, 0, 1)
	}
	r.all = append(r.all, s)
}

// span returns the oldest and the newest sample and the seconds between them. It returns false
// without two samples.
func (r *rates) span() (first, last sample, seconds float64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.all)
	if n < 2 {
		return sample{}, sample{}, 0, false
	}
	first, last = r.all[0], r.all[n-1]
	seconds = last.at.Sub(first.at).Seconds()
	return first, last, seconds, seconds > 0
}

// ofStore returns the calls of the store in a second, and the mean seconds of a call.
func (r *rates) ofStore() (perSecond, latency float64) {
	first, last, seconds, ok := r.span()
	if !ok || last.calls <= first.calls {
		return 0, 0
	}
	calls := float64(last.calls - first.calls)
	return calls / seconds, (last.seconds - first.seconds) / calls
}

// hitRates are the hits of a rule in a second.
type hitRates struct{ allowed, denied float64 }

// ofRules returns the rates of rules, in the order of [descriptors.Rules.All]. They are 0 without
// two samples of these rules.
func (r *rates) ofRules(rules *descriptors.Rules) []hitRates {
	_, n := rules.Counts()
	all := make([]hitRates, n)
	first, last, seconds, ok := r.span()
	if !ok || last.rules != rules {
		return all
	}
	for i := range all {
		a, b := first.hits[i], last.hits[i] // all samples have the same rules
		// A counter may restart from 0 at a reload.
		all[i] = hitRates{max(0, float64(b.allowed)-float64(a.allowed)) / seconds, max(0, float64(b.denied)-float64(a.denied)) / seconds}
	}
	return all
}
