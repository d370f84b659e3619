package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/split"
)

// A slotCall is a call with hits whose keys share a slot. It fails independently of other calls.
type slotCall struct {
	split.Subset
	batch *batch // with the keys; run encodes the groups
	reply reply
	err   error
}

// sendAlone sends the call through the cluster client, which follows MOVED and ASK.
func (sc *slotCall) sendAlone(ctx context.Context, s *Store, clock *serverClock) {
	sc.reply, sc.err = s.script.call(ctx, s.cluster, clock, sc.batch)
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
	return slices.ContainsFunc(keys, func(key string) bool { return slotOf(key) != slotOf(keys[0]) })
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

// decideSlots decides groups on one node, with a call for each slot. It returns an error only if all calls failed.
func (s *Store) decideSlots(
	ctx context.Context, clock *serverClock, notAfter, now time.Time, groups []limiters.Group, out []limiters.Verdict,
) error {
	calls := splitBySlot(notAfter, now, groups, s.namer.keys(groups))
	s.run(ctx, clock, calls)
	s.decideByKey(ctx, clock, slices.DeleteFunc(slices.Clone(calls), func(sc *slotCall) bool { return !redis.IsTryAgainError(sc.err) }))
	return s.scatter(calls, out)
}

// scatter writes the verdicts of calls to out. It returns an error only if all calls failed.
func (s *Store) scatter(calls []*slotCall, out []limiters.Verdict) error {
	var errs []error
	for _, sc := range calls {
		if sc.err == nil {
			sc.Scatter(out, nil)
			continue
		}
		errs = append(errs, sc.err)
		s.reloadSlots(sc.err)
		sc.Scatter(out, fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(sc.batch.keys[0]), s.address, sc.err))
	}
	if len(errs) < len(calls) {
		return nil
	}
	return joinErrors(errs)
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

// run encodes and sends calls, and reads their verdicts.
func (s *Store) run(ctx context.Context, clock *serverClock, calls []*slotCall) {
	for _, sc := range calls {
		sc.batch.encode(sc.Groups)
	}
	if len(calls) == 1 {
		calls[0].sendAlone(ctx, s, clock) // saves the goroutine
	} else {
		s.send(ctx, clock, calls)
	}
	for _, sc := range calls {
		sc.read()
	}
}

// send sends calls to all nodes concurrently. A panic becomes an error of the calls to its node.
func (s *Store) send(ctx context.Context, clock *serverClock, calls []*slotCall) {
	nodes := map[*redis.Client][]*slotCall{}
	for _, sc := range calls {
		node, err := s.cluster.MasterForKey(ctx, sc.batch.keys[0])
		if err != nil {
			failCalls(calls, limiters.Uncharged(err)) // the slots are unknown, so nothing was sent
			return
		}
		nodes[node] = append(nodes[node], sc)
	}
	var sending sync.WaitGroup
	for node, calls := range nodes {
		sending.Go(func() {
			if err := split.CatchPanic(func() error { s.sendToNode(ctx, clock, node, calls); return nil }); err != nil {
				s.stats.panics.Add(1)
				failCalls(calls, err)
			}
		})
	}
	sending.Wait()
}

func failCalls(calls []*slotCall, err error) {
	for _, sc := range calls {
		sc.err = err
	}
}

// sendToNode sends calls in one pipeline to the node that should own their slots. If the node lacks the script or its time is unknown,
// the calls do not run. Then one of them is sent alone, which fixes both, and the others in a second pipeline. Calls that still did
// not run are sent alone too.
func (s *Store) sendToNode(ctx context.Context, clock *serverClock, node *redis.Client, calls []*slotCall) {
	if len(calls) > 1 {
		calls = s.pipeline(ctx, clock, node, calls)
	}
	if len(calls) > 2 {
		calls[0].sendAlone(ctx, s, clock)
		calls = s.pipeline(ctx, clock, node, calls[1:])
	}
	for _, sc := range calls {
		sc.sendAlone(ctx, s, clock)
	}
}

// pipeline sends calls to a node in one pipeline and returns those to send again, because they did not run. It does not use
// the cluster client's pipeline, which waits for unreachable nodes and then overwrites other replies with its error.
func (s *Store) pipeline(ctx context.Context, clock *serverClock, node *redis.Client, calls []*slotCall) (rest []*slotCall) {
	pipe := node.Pipeline()
	commands := make([]command, len(calls))
	for i, sc := range calls {
		commands[i] = newCommand(ctx, clock, "evalsha", s.script.digest, sc.batch)
		_ = pipe.Process(ctx, commands[i]) // only queues the command
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, sc := range calls {
		sc.reply, sc.err = commands[i].parse(clock)
		if didNotRun(sc.err) || sc.batch.rejectedTooEarly(sc.reply, sc.err) {
			rest = append(rest, sc)
		}
	}
	return rest
}

func didNotRun(err error) bool {
	if err == nil {
		return false
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return true
	}
	_, moved := redis.IsMovedError(err)
	_, ask := redis.IsAskError(err)
	return moved || ask
}
