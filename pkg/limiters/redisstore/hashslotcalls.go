package redisstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A hashSlotCall is a call with operations whose keys share a hash slot. It fails independently of
// other calls.
type hashSlotCall struct {
	split.Subset
	callTimes
	keys  []string // the keys of the operations
	batch *batch   // set only during makeCalls
	reply reply
	err   error
}

func (sc *hashSlotCall) encode() {
	sc.batch = newBatch(sc.callTimes)
	sc.batch.encode(sc.Groups, sc.keys)
}

// A callSet contains one call for each K.
type callSet[K comparable] struct {
	callTimes                 // of new calls
	calls     []*hashSlotCall // in the order in which they were added
	callOf    map[K]*hashSlotCall
}

// of returns the call for k, adding it if there is none.
func (s *callSet[K]) of(k K) *hashSlotCall {
	sc := s.callOf[k]
	if sc == nil {
		if s.callOf == nil {
			s.callOf = map[K]*hashSlotCall{}
		}
		sc = &hashSlotCall{callTimes: s.callTimes}
		s.callOf[k] = sc
		s.calls = append(s.calls, sc)
	}
	return sc
}

// setVerdicts sets the verdicts and releases the batch. If the call failed, each has the error.
func (sc *hashSlotCall) setVerdicts() {
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

// spansHashSlots reports whether keys are in several hash slots.
func spansHashSlots(keys []string) bool {
	return slices.ContainsFunc(keys[1:], func(key string) bool { return hashSlotOf(key) != hashSlotOf(keys[0]) })
}

// splitByHashSlot makes a call for each hash slot, with groups in their order.
func splitByHashSlot(times callTimes, groups []limiters.Group, keys []string) []*hashSlotCall {
	byHashSlot := callSet[uint16]{callTimes: times}
	for first, g := range limiters.EachGroup(groups) {
		sc := byHashSlot.of(hashSlotOf(keys[first]))
		sc.Add(g, first)
		sc.keys = append(sc.keys, keys[first:first+len(g)]...)
	}
	return byHashSlot.calls
}

// scatter writes the verdicts of calls to out. It returns an error only if all calls failed.
func (c *cluster) scatter(calls []*hashSlotCall, out []limiters.Verdict) error {
	errs := make([]error, len(calls))
	for i, sc := range calls {
		errs[i] = sc.err
		if sc.err != nil {
			limiters.FailAll(sc.Verdicts, fmt.Errorf("redisstore: hash slot %d of %s: %w", hashSlotOf(sc.keys[0]), c.address, sc.err))
			if hashSlotsMayHaveMoved(sc.err) {
				c.client.ReloadState(context.Background()) // go-redis does so only every minute and after redirections
			}
		}
		sc.Scatter(out)
	}
	return split.ErrorOfAll(errs)
}

// hashSlotsMayHaveMoved reports whether err may mean that another node owns the hash slots now.
// go-redis itself handles MOVED and ASK.
func hashSlotsMayHaveMoved(err error) bool {
	return !redisReplied(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsMasterDownError(err) || redis.IsLoadingError(err)
}

func failCalls(calls []*hashSlotCall, err error) {
	for _, sc := range calls {
		sc.err = err
	}
}
