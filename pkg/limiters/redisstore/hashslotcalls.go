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

// A hashSlotCall is a call with operations whose keys share a hash slot. It fails independently of
// other calls.
type hashSlotCall struct {
	split.Subset
	notAfter time.Time // as batch.notAfter
	keys     []string  // the keys of the operations
	batch    *batch    // set only during makeCalls
	reply    reply
	err      error
}

func (call *hashSlotCall) encode(now time.Time) {
	call.batch = newBatch(now, call.notAfter)
	call.batch.encode(call.Groups, call.keys)
}

// A callSet contains one call for each K.
type callSet[K comparable] struct {
	notAfter time.Time       // of new calls
	calls    []*hashSlotCall // in the order in which they were added
	callOf   map[K]*hashSlotCall
}

// of returns the call for k, adding it if there is none.
func (s *callSet[K]) of(k K) *hashSlotCall {
	call := s.callOf[k]
	if call == nil {
		if s.callOf == nil {
			s.callOf = map[K]*hashSlotCall{}
		}
		call = &hashSlotCall{notAfter: s.notAfter}
		s.callOf[k] = call
		s.calls = append(s.calls, call)
	}
	return call
}

// setVerdicts sets the verdicts and releases the batch. If the call failed, each has the error.
func (call *hashSlotCall) setVerdicts() {
	call.Verdicts = make([]limiters.Verdict, call.Len())
	if call.err == nil {
		call.err = call.batch.decode(call.reply, call.Verdicts)
	}
	if call.err != nil {
		limiters.FailAll(call.Verdicts, call.err)
	}
	call.batch.release()
	call.batch = nil
}

// spansHashSlots reports whether keys are in several hash slots.
func spansHashSlots(keys []string) bool {
	return slices.ContainsFunc(keys[1:], func(key string) bool { return hashSlotOf(key) != hashSlotOf(keys[0]) })
}

// splitByHashSlot makes a call for each hash slot, with groups in their order.
func splitByHashSlot(notAfter time.Time, groups []limiters.Group, keys []string) []*hashSlotCall {
	byHashSlot := callSet[uint16]{notAfter: notAfter}
	for first, g := range limiters.EachGroup(groups) {
		call := byHashSlot.of(hashSlotOf(keys[first]))
		call.Add(g, first)
		call.keys = append(call.keys, keys[first:first+len(g)]...)
	}
	return byHashSlot.calls
}

// scatter writes the verdicts of calls to out. It returns an error only if all calls failed.
func (c *cluster) scatter(calls []*hashSlotCall, out []limiters.Verdict) error {
	errs := make([]error, len(calls))
	for i, call := range calls {
		errs[i] = call.err
		if call.err != nil {
			limiters.FailAll(call.Verdicts, fmt.Errorf("redisstore: hash slot %d of %s: %w", hashSlotOf(call.keys[0]), c.store.address, call.err))
			if hashSlotsMayHaveMoved(call.err) {
				c.client.ReloadState(context.Background()) // go-redis does so only every minute and after redirections
			}
		}
		call.Scatter(out)
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
	for _, call := range calls {
		call.err = err
	}
}
