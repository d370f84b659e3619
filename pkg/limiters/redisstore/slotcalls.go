package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A slotCall is a call with operations whose keys share a hash slot. It fails independently of
// other calls.
type slotCall struct {
	split.Subset
	callTimes
	keys  []string // the keys of the operations
	batch *batch   // set only during makeCalls
	reply reply
	err   error
}

func (sc *slotCall) encode() {
	sc.batch = newBatch(sc.callTimes)
	sc.batch.encode(sc.Groups, sc.keys)
}

// A callSet contains one call for each K.
type callSet[K comparable] struct {
	callTimes             // of new calls
	calls     []*slotCall // in the order in which they were added
	callOf    map[K]*slotCall
}

// of returns the call for k, adding it if there is none.
func (s *callSet[K]) of(k K) *slotCall {
	sc := s.callOf[k]
	if sc == nil {
		if s.callOf == nil {
			s.callOf = map[K]*slotCall{}
		}
		sc = &slotCall{callTimes: s.callTimes}
		s.callOf[k] = sc
		s.calls = append(s.calls, sc)
	}
	return sc
}

// setVerdicts sets the verdicts and releases the batch. If the call failed, each has the error.
func (sc *slotCall) setVerdicts() {
	sc.Verdicts = make([]limiters.Verdict, sc.Len())
	if sc.err == nil {
		sc.err = sc.batch.decode(sc.reply, sc.Verdicts)
	}
	if sc.err != nil {
		limiters.FailAll(sc.Verdicts, sc.err)
	}
	sc.batch.release()
	sc.batch = nil
}

// spansSlots reports whether keys are in several hash slots.
func spansSlots(keys []string) bool {
	return slices.ContainsFunc(keys[1:], func(key string) bool { return slotOf(key) != slotOf(keys[0]) })
}

// splitBySlot makes a call for each hash slot, with groups in their order.
func splitBySlot(times callTimes, groups []limiters.Group, keys []string) []*slotCall {
	bySlot := callSet[uint16]{callTimes: times}
	for first, g := range limiters.EachGroup(groups) {
		sc := bySlot.of(slotOf(keys[first]))
		sc.Add(g, first)
		sc.keys = append(sc.keys, keys[first:first+len(g)]...)
	}
	return bySlot.calls
}

// scatter writes the verdicts of calls to out. It returns an error only if all calls failed.
func (c *cluster) scatter(calls []*slotCall, out []limiters.Verdict) error {
	errs := make([]error, len(calls))
	for i, sc := range calls {
		errs[i] = sc.err
		if sc.err != nil {
			limiters.FailAll(sc.Verdicts, fmt.Errorf("redisstore: hash slot %d of %s: %w", slotOf(sc.keys[0]), c.address, sc.err))
			if slotsMayHaveMoved(sc.err) {
				c.client.ReloadState(context.Background()) // go-redis does so only every minute and after redirections
			}
		}
		sc.Scatter(out)
	}
	return split.ErrorOfAll(errs)
}

// slotsMayHaveMoved reports whether err may mean that another node owns the hash slots now.
// go-redis itself handles MOVED and ASK.
func slotsMayHaveMoved(err error) bool {
	return !redisReplied(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}

func failCalls(calls []*slotCall, err error) {
	for _, sc := range calls {
		sc.err = err
	}
}
