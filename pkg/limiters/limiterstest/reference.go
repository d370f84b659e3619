package limiterstest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reference is the plainest Store there is: the core's own functions over a map that only grows. What it answers is what
// every store has to answer. It wants a now with each call.
type Reference struct {
	mu     sync.Mutex
	states map[[2]string]limiters.State
}

// NewReference makes an empty Reference.
func NewReference() *Reference { return &Reference{states: make(map[[2]string]limiters.State)} }

// Take implements limiters.Store.
func (r *Reference) Take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if now.IsZero() {
		now = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make([]limiters.State, len(hits))
	for i, h := range hits {
		id := [2]string{h.Key, h.Limit.ID()}
		if r.states[id] == nil {
			r.states[id] = h.Limit.NewState()
		}
		states[i] = r.states[id]
	}
	limiters.Decide(now.UnixMicro(), hits, states, out)
	return nil
}
