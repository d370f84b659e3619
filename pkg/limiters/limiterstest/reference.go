package limiterstest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reference is the simplest possible Store: the core's functions over a map that only grows. Every store must return its
// verdicts. Pass it a now with each call.
type Reference struct {
	mu     sync.Mutex
	of     map[[2]string]int
	states []limiters.State
}

// NewReference returns an empty Reference.
func NewReference() *Reference { return &Reference{of: make(map[[2]string]int)} }

// Take implements limiters.Store.
func (r *Reference) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if now.IsZero() {
		now = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := make([]int, 0, len(out))
	for _, g := range groups {
		for _, h := range g {
			id := [2]string{h.Key, h.Limit.ID()}
			n, found := r.of[id]
			if !found {
				n = len(r.states)
				r.of[id], r.states = n, append(r.states, limiters.State{})
			}
			of = append(of, n)
		}
	}
	limiters.Decide(now.UnixMicro(), groups, of, r.states, out)
	return nil
}
