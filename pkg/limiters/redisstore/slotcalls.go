package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A slotCall is a call with hits whose keys share a slot. It fails independently of other calls.
type slotCall struct {
	split.Subset
	batch *batch // with the keys; makeCalls encodes the groups
	reply reply
	err   error
}

func (sc *slotCall) read() {
	if sc.err != nil {
		return
	}
	sc.Verdicts = make([]limiters.Verdict, sc.Len())
	sc.err = sc.batch.read(sc.reply, sc.Verdicts)
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
	var errs []error
	for _, sc := range calls {
		if sc.err == nil {
			sc.Scatter(out, nil)
			continue
		}
		errs = append(errs, sc.err)
		if slotsMayHaveMoved(sc.err) {
			c.client.ReloadState(context.Background()) // go-redis does so only every minute and after redirections
		}
		sc.Scatter(out, fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(sc.batch.keys[0]), c.address, sc.err))
	}
	if len(errs) < len(calls) {
		return nil
	}
	return joinErrors(errs)
}

// slotsMayHaveMoved reports whether err may mean that another node owns the slots now. go-redis itself handles MOVED and ASK.
func slotsMayHaveMoved(err error) bool {
	return replyOf(err) == nil || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}

// joinErrors joins errs. The result is [limiters.IsUncharged] only if all of errs are. It omits errors with the text of an earlier one,
// because a call may have hundreds of slots that fail alike.
func joinErrors(errs []error) error {
	type content struct {
		text      string
		uncharged bool
	}
	seen := map[content]bool{}
	var distinct []error
	for _, err := range errs {
		c := content{err.Error(), limiters.IsUncharged(err)}
		if !seen[c] {
			seen[c] = true
			distinct = append(distinct, err)
		}
	}
	if len(distinct) == 1 {
		return distinct[0]
	}
	return errors.Join(distinct...)
}

func failCalls(calls []*slotCall, err error) {
	for _, sc := range calls {
		sc.err = err
	}
}
