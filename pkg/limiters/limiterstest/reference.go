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
	mu      sync.Mutex
	indexOf map[[2]string]int
	states  []limiters.State
}

// NewReference returns an empty Reference.
func NewReference() *Reference { return &Reference{indexOf: make(map[[2]string]int)} }

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
	stateIndex := make([]int, 0, len(out))
	for _, g := range groups {
		for _, h := range g {
			id := [2]string{h.Key, h.Limit.ID()}
			n, found := r.indexOf[id]
			if !found {
				n = len(r.states)
				r.indexOf[id], r.states = n, append(r.states, limiters.State{})
			}
			stateIndex = append(stateIndex, n)
		}
	}
	limiters.Decide(now.UnixMicro(), groups, stateIndex, r.states, out)
	return nil
}
