package main

import "sync"

// readiness tells whether the server wants requests: once everything it needs is there, until it stops.
type readiness struct {
	mu      sync.Mutex
	missing int
	stopped bool
	changed func(ready bool) // called with every change, before is tells it
}

func newReadiness() *readiness { return &readiness{changed: func(bool) {}} }

// need tells of something that is needed, and returns what to call, once or more often, when it is there. All that is
// needed is told before anything of it is there.
func (r *readiness) need() (there func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing++
	var once sync.Once
	return func() {
		once.Do(func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.missing == 1 {
				r.changed(!r.stopped)
			}
			r.missing--
		})
	}
}

// onChange calls f now, and from now on with every change.
func (r *readiness) onChange(f func(ready bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = f
	f(r.missing == 0 && !r.stopped)
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed(false)
	r.stopped = true
}

func (r *readiness) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing == 0 && !r.stopped
}
