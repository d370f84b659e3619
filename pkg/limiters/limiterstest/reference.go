package limiterstest

import (
	"context"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reference is the simplest possible Store: the core's functions over a map that only grows. Every
// store must return its verdicts.
type Reference struct {
	mu     sync.Mutex
	states map[limiters.StateName]*limiters.State
	grow   limiters.GrowFunc // nil: memory is not bounded
	latest int64             // the latest time of its own clock, in µs since 1970
	order  uint16            // the number of the last Take at that time, from 0

	Now func() time.Time // replaces the clock of the machine, if not nil
}

// NewReference returns an empty Reference.
func NewReference() *Reference { return &Reference{states: map[limiters.StateName]*limiters.State{}} }

// Take implements [limiters.Store].
func (r *Reference) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	return r.TakeAt(ctx, time.Time{}, groups, out)
}

// TakeAt implements [TimedStore].
func (r *Reference) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.FailAll(out, limiters.Uncharged(err))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	order := uint16(0)
	if now.IsZero() {
		now, order = r.clock()
	}
	states := make([]*limiters.State, len(out))
	for i, op := range limiters.EachOp(groups) {
		states[i] = r.state(op)
	}
	limiters.Decide(now.UnixMicro(), groups, states, out, r.grow)
	for i := range out {
		out[i].At, out[i].Order = now.UnixMicro(), order
	}
	return nil
}

// state returns the state of op, and adds a zero state if there is none.
func (r *Reference) state(op *limiters.Op) *limiters.State {
	name := op.Limit.StateName(op.Key)
	if r.states[name] == nil {
		r.states[name] = &limiters.State{}
	}
	return r.states[name]
}

// clock reads the own clock, and returns how many Takes of the same time were before.
func (r *Reference) clock() (now time.Time, order uint16) {
	now = time.Now()
	if r.Now != nil {
		now = r.Now()
	}
	if now.UnixMicro() == r.latest {
		r.order++
	} else {
		r.latest, r.order = now.UnixMicro(), 0
	}
	return now, r.order
}

// Reset implements [limiters.Store].
func (r *Reference) Reset(_ context.Context, names []limiters.StateName) (found []bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found = make([]bool, len(names))
	for i, name := range names {
		if s := r.states[name]; s != nil {
			found[i] = !s.IsZero()
			*s = limiters.State{}
		}
	}
	return found, nil
}

// ResetMatching implements [limiters.Store]. One call is a whole pass.
func (r *Reference) ResetMatching(_ context.Context, match func(key string) bool, cursor string) (done limiters.Progress, err error) {
	if cursor != "" {
		return done, limiters.ErrCursor
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.states {
		done.Scanned++
		if match(name.Key) && !s.IsZero() {
			*s = limiters.State{}
			done.Reset++
		}
	}
	return done, nil
}
