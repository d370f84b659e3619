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
	store.Reference.grow = func(int) error {
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
	op, s := &g[0], c.state(&g[0])
	before, wasZero := s.HeapBytes(), s.IsZero()
	c.asked = false
	if err := take(); err != nil {
		return err
	}
	grew := s.HeapBytes() > before || wasZero && !s.IsZero()
	if grew {
		c.grown++
	}
	settlesReservation := op.Kind == limiters.OpEnd && !wasZero // must not fail, so it grows without asking
	if grew && !c.asked && !settlesReservation {
		c.t.Errorf("%d kind=%d n=%d %s asks for no memory, and its state grows from %d to %d bytes: %s", now.UnixMicro(), op.Kind, op.Hits,
			op.Limit.Algorithm(), before, s.HeapBytes(), Format(out[0]))
	}
	return nil
}
