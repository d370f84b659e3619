package limiterstest

import (
	"context"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A store whose memory is full decides an operation that needs no more memory without asking for
// any.
func TestStateGrowsOnlyByOpsThatNeedMemory(t *testing.T) {
	store := &growthCheck{Reference: NewReference(), t: t}
	store.Reference.grow = func(int, *limiters.Op) error {
		store.asked = true
		return nil
	}
	RunRandom(t, store)
	s := suite{newReference, fullSequences}
	s.random(t, store, limiters.Algorithms(), NewLeaseGenerator)
	s.randomMixed(t, store)
	if store.grown == 0 {
		t.Error("no state has grown")
	}
}

// A growthCheck is a Reference that compares the growth of each state with the calls of its
// GrowFunc.
type growthCheck struct {
	*Reference
	t     *testing.T
	grown int
	asked bool // the current operation needs memory
}

func (c *growthCheck) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	for first, g := range limiters.EachGroup(groups) {
		if err := c.takeGroup(ctx, now, g, out[first:first+len(g)]); err != nil {
			return err
		}
	}
	return nil
}

func (c *growthCheck) takeGroup(ctx context.Context, now time.Time, g limiters.Group, out []limiters.Verdict) error {
	take := func() error { return c.Reference.TakeAt(ctx, now, []limiters.Group{g}, out) }
	if len(g) > 1 {
		return take() // its operations depend on each other
	}
	op, i := &g[0], c.stateIndex(&g[0])
	before, wasZero := c.states[i].HeapBytes(), c.states[i].IsZero()
	c.asked = false
	if err := take(); err != nil {
		return err
	}
	after := &c.states[i]
	grew := after.HeapBytes() > before || wasZero && !after.IsZero()
	if grew {
		c.grown++
	}
	settlesReservation := op.Kind == limiters.OpEnd && !wasZero // must not fail, so it grows without asking
	if grew && !c.asked && !settlesReservation {
		c.t.Errorf("%d kind=%d n=%d %s asks for no memory, and its state grows from %d to %d bytes: %s", now.UnixMicro(), op.Kind, op.N,
			op.Limit.Algorithm(), before, after.HeapBytes(), Format(out[0]))
	}
	return nil
}
