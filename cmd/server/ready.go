package main

import "sync"

// readiness reports whether the server should get requests: from when all that it needs is there, until it stops.
type readiness struct {
	mu      sync.Mutex
	missing int
	stopped bool
	changed []func(ready bool)
}

func newReadiness() *readiness { return &readiness{} }

// need adds something that the server needs. The function that it returns reports that it is there, and may be called
// several times. All needs must be added before the first is there.
func (r *readiness) need() (there func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.missing--
		if r.missing == 0 && !r.stopped {
			r.report(true)
		}
	})
}

// onChange calls f now, and with each change from now on.
func (r *readiness) onChange(f func(ready bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, f)
	f(r.missing == 0 && !r.stopped)
}

func (r *readiness) report(ready bool) {
	for _, f := range r.changed {
		f(ready)
	}
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.report(false)
}

func (r *readiness) is() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.missing == 0 && !r.stopped
}
