package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A slotCall is a call with operations whose keys share a slot. It fails independently of other
// calls.
type slotCall struct {
	split.Subset
	batch *batch // has the keys; makeCalls encodes the groups
	reply reply
	err   error
}

// setVerdicts sets the verdicts. If the call failed, each has the error.
func (sc *slotCall) setVerdicts() {
	sc.Verdicts = make([]limiters.Verdict, sc.Len())
	if sc.err == nil {
		sc.err = sc.batch.decode(sc.reply, sc.Verdicts)
	}
	if sc.err != nil {
		limiters.FailAll(sc.Verdicts, sc.err)
	}
}

// spansSlots reports whether keys are in several slots.
func spansSlots(keys []string) bool {
	return slices.ContainsFunc(keys[1:], func(key string) bool { return slotOf(key) != slotOf(keys[0]) })
}

// splitBySlot makes a call for each slot, with groups in their order.
func splitBySlot(notAfter, now time.Time, groups []limiters.Group, keys []string) []*slotCall {
	bySlot := map[uint16]*slotCall{}
	var calls []*slotCall
	for first, g := range limiters.EachGroup(groups) {
		slot := slotOf(keys[first])
		sc := bySlot[slot]
		if sc == nil {
			sc = &slotCall{batch: newBatch(notAfter, now)}
			bySlot[slot] = sc
			calls = append(calls, sc)
		}
		sc.Add(g, first)
		sc.batch.keys = append(sc.batch.keys, keys[first:first+len(g)]...)
	}
	return calls
}

// scatter writes the verdicts of calls to out. It returns an error only if all calls failed.
func (c *cluster) scatter(calls []*slotCall, out []limiters.Verdict) error {
	errs := make([]error, len(calls))
	for i, sc := range calls {
		errs[i] = sc.err
		if sc.err != nil {
			limiters.FailAll(sc.Verdicts, fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(sc.batch.keys[0]), c.address, sc.err))
			if slotsMayHaveMoved(sc.err) {
				c.client.ReloadState(context.Background()) // go-redis does so only every minute and after redirections
			}
		}
		sc.Scatter(out)
	}
	return split.ErrorOfAll(errs)
}

// slotsMayHaveMoved reports whether err may mean that another node owns the slots now. go-redis
// itself handles MOVED and ASK.
func slotsMayHaveMoved(err error) bool {
	return replyOf(err) == nil || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}

func failCalls(calls []*slotCall, err error) {
	for _, sc := range calls {
		sc.err = err
	}
}
