package main

import (
	"math"
	"os"
	"sync"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/observe"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// replica returns the host name, which names this process in decisions.
func replica() string {
	name, _ := os.Hostname()
	return name
}

// newObserver returns the observer of decisions, or nil if the settings and subscribers need none. subscribers reports whether the
// admin API may subscribe to decisions.
func newObserver(s *settings.Serve, subscribers bool, log *zap.Logger, metrics *telemetry.Metrics) *observe.Observer {
	o := observe.Options{
		TopKeys: *s.TopKeys, Secret: []byte(s.KeyHashSecret), Replica: replica(),
		DenialShare: s.DenialLog, DenialsPerSecond: s.DenialLogPerSecond,
	}
	if o.DenialShare > 0 {
		o.LogDenial = telemetry.DenialLog(log)
	}
	if o.TopKeys == 0 && o.LogDenial == nil && !subscribers {
		return nil
	}
	observer := observe.New(o)
	metrics.Observer(observer.Stats)
	return observer
}

// An adminObserver adapts an Observer to the admin API.
type adminObserver struct{ *observe.Observer }

// Top implements [admin.TopKeys].
func (o adminObserver) Top(denied bool, domain string, n int) admin.Top {
	by := observe.ByHits
	if denied {
		by = observe.ByDenied
	}
	top := admin.Top{Keys: []admin.TopKey{}}
	found, err := o.Observer.Top(by, domain, n)
	if err != nil { // TOP_KEYS is 0
		return top
	}
	top.Since, top.Total, top.Error = found.Since, signed(found.Total), signed(found.Error)
	for _, k := range found.Keys {
		top.Keys = append(top.Keys, admin.TopKey{
			Domain: k.Domain, Rule: k.Rule, Key: adminEntries(k.Key), KeyHash: k.KeyHash, Count: signed(k.Count), Error: signed(k.Error),
		})
	}
	return top
}

func signed(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

func adminEntries(entries []descriptors.Entry) []admin.Entry {
	all := make([]admin.Entry, len(entries))
	for i, e := range entries {
		all[i] = admin.Entry{e.Key, e.Value}
	}
	return all
}

// Subscribe implements [admin.Decisions]. Its goroutine ends at cancel.
func (o adminObserver) Subscribe(f admin.Filter) (decisions <-chan admin.Decision, dropped func() int64, cancel func(), err error) {
	s, err := o.Observer.Subscribe(observe.Filter{
		Domain: f.Domain, Rule: f.Rule, Outcome: f.Outcome, Sample: f.Sample, Entry: descriptors.Entry{Key: f.Entry[0], Value: f.Entry[1]},
	})
	if err != nil {
		return nil, nil, nil, err
	}
	converted, cancelled := make(chan admin.Decision), make(chan struct{})
	var converting sync.WaitGroup
	converting.Go(func() {
		defer close(converted)
		for d := range s.C {
			select {
			case converted <- adminDecision(&d):
			case <-cancelled:
				return
			}
		}
	})
	return converted, s.Dropped, sync.OnceFunc(func() {
		close(cancelled)
		s.Close()
		converting.Wait()
	}), nil
}

func adminDecision(d *observe.Decision) admin.Decision {
	retry := d.RetryAfter.String()
	if d.RetryAfter < 0 {
		retry = "never"
	}
	return admin.Decision{
		Time: d.Time, Domain: d.Domain, Rule: d.Rule, Limit: d.Limit, Algorithm: d.Algorithm, Key: adminEntries(d.Key), KeyHash: d.KeyHash,
		Outcome: d.Outcome, Enforced: d.Enforced, Reason: d.Reason, Hits: d.Hits, Used: d.Used, Remaining: d.Remaining, RetryAfter: retry,
		ResetAfter: d.ResetAfter.String(), By: d.By, Replica: d.Replica, RulesVersion: d.RulesVersion,
	}
}
