package limiterstest

import (
	"context"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A store whose memory is full decides an operation that needs no room without asking for any.
func TestStateGrowsOnlyByOpsThatNeedRoom(t *testing.T) {
	store := &growthCheck{Reference: NewReference(), t: t}
	Random(t, store)
	randomLeases(t, store, newReference, sequences)
	randomMixed(t, store, newReference, sequences)
	if store.grown == 0 {
		t.Error("no state has grown")
	}
}

// A growthCheck is a Reference that compares the growth of each state with NeedsRoom.
type growthCheck struct {
	*Reference
	t     *testing.T
	grown int
}

func (c *growthCheck) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	for first, g := range limiters.EachGroup(groups) {
		if err := c.takeGroup(ctx, now, g, out[first:first+len(g)]); err != nil {
			return err
		}
	}
	return nil
}

func (c *growthCheck) takeGroup(ctx context.Context, now time.Time, g limiters.Group, out []limiters.Verdict) error {
	take := func() error { return c.Reference.Take(ctx, now, []limiters.Group{g}, out) }
	if len(g) > 1 {
		return take() // its operations depend on each other
	}
	op, i := &g[0], c.stateIndex(&g[0])
	before, wasZero, needsRoom := c.states[i].GrownBytes(), c.states[i].IsZero(), op.NeedsRoom(&c.states[i], now.UnixMicro())
	if err := take(); err != nil {
		return err
	}
	after := &c.states[i]
	grew := after.GrownBytes() > before || wasZero && !after.IsZero()
	if grew {
		c.grown++
	}
	settlesReservation := op.Kind == limiters.OpEnd && !wasZero // must not fail, so it grows without asking
	if grew && !needsRoom && !settlesReservation {
		c.t.Errorf("%d kind=%d n=%d %s needs no room, and its state grows from %d to %d bytes: %s", now.UnixMicro(), op.Kind, op.N,
			op.Limit.Algorithm(), before, after.GrownBytes(), Format(out[0]))
	}
	return nil
}
