package main

import "sync"

// A readiness reports whether proxies should send requests: from the time at which rules are in
// force or not required, and the store has answered or need not, until stop. The zero value is
// ready for use.
type readiness struct {
	mu                            sync.Mutex
	hasRules, hasStore, isStopped bool
	changed                       []func(ready bool)
}

// setRulesReady records that rules are in force or not required. Further calls have no effect.
func (r *readiness) setRulesReady() { r.set(&r.hasRules) }

// setStoreReady records that the store can decide requests, or need not. Further calls have no
// effect.
func (r *readiness) setStoreReady() { r.set(&r.hasStore) }

// stop makes the process permanently not ready.
func (r *readiness) stop() { r.set(&r.isStopped) }

// set sets a condition, and calls the onChange functions if the readiness has changed.
func (r *readiness) set(condition *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.readyLocked()
	*condition = true
	if now := r.readyLocked(); now != before {
		for _, f := range r.changed {
			f(now)
		}
	}
}

// onChange calls f now and at each change.
func (r *readiness) onChange(f func(ready bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
	f(r.readyLocked())
}

func (r *readiness) isReady() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readyLocked()
}

// readyLocked requires that r.mu is held.
func (r *readiness) readyLocked() bool { return r.hasRules && r.hasStore && !r.isStopped }
