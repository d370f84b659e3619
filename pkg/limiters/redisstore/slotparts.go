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

// A part is the hits that one script call decides, because their keys are in one slot. If the call fails, the verdicts of
// the other parts stand.
type part struct {
	split.Part
	keys   []string  // of the hits
	latest time.Time // see batch
	batch  *batch
	reply  reply
	err    error
}

func (p *part) run(ctx context.Context, s script, c processor, clock *serverClock) {
	p.reply, p.err = s.run(ctx, c, clock, p.batch)
}

// read sets the verdicts, or err.
func (p *part) read() {
	if p.err != nil {
		return
	}
	p.Verdicts = make([]limiters.Verdict, p.Len())
	p.err = p.batch.read(p.reply, p.Verdicts)
}

// slotsOf returns the slot of each group, by its first key.
func slotsOf(groups []limiters.Group, keys []string) []uint16 {
	slots, first := make([]uint16, len(groups)), 0
	for i, g := range groups {
		slots[i] = slotOf(keys[first])
		first += len(g)
	}
	return slots
}

// spansSlots reports whether keys are in several slots.
func spansSlots(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return slotOf(key) != slotOf(keys[0]) })
}

// splitBySlot makes a part of the groups of each slot, in their order.
func splitBySlot(now time.Time, groups []limiters.Group, keys []string) []*part {
	bySlot, first := map[uint16]*part{}, 0
	var parts []*part
	for i, slot := range slotsOf(groups, keys) {
		p := bySlot[slot]
		if p == nil {
			p = &part{}
			bySlot[slot] = p
			parts = append(parts, p)
		}
		n := len(groups[i])
		p.Add(groups[i], first)
		p.keys = append(p.keys, keys[first:first+n]...)
		first += n
	}
	for _, p := range parts {
		p.batch = newBatch(now, p.Groups, p.keys)
	}
	return parts
}

// decideSlots decides groups of one node, with a call for each slot. It returns an error only if all calls failed.
func (s *Store) decideSlots(
	ctx context.Context, clock *serverClock, now time.Time, groups []limiters.Group, out []limiters.Verdict,
) error {
	parts := splitBySlot(now, groups, s.namer.keys(groups))
	if len(parts) == 1 {
		parts[0].run(ctx, s.script, s.cluster, clock)
	} else {
		s.send(ctx, clock, parts)
	}
	for _, p := range parts {
		p.read()
	}
	s.decideByKey(ctx, clock, slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return !redis.IsTryAgainError(p.err) }))
	return s.scatter(parts, out)
}

// scatter writes the verdicts of parts to out. It returns an error only if all parts failed.
func (s *Store) scatter(parts []*part, out []limiters.Verdict) error {
	failed := 0
	for _, p := range parts {
		if p.err == nil {
			p.Scatter(out, nil)
			continue
		}
		failed++
		s.reloadSlots(p.err)
		p.Scatter(out, fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(p.keys[0]), s.address, p.err))
	}
	if failed < len(parts) {
		return nil
	}
	return parts[0].err
}

// send sends each part in its own call: one pipeline for each node, all nodes at the same time.
func (s *Store) send(ctx context.Context, clock *serverClock, parts []*part) {
	nodes := map[*redis.Client][]*part{}
	for _, p := range parts {
		node, err := s.cluster.MasterForKey(ctx, p.keys[0])
		if err != nil {
			// The slots are unknown; nothing was sent.
			for _, p := range parts {
				p.err = err
			}
			return
		}
		nodes[node] = append(nodes[node], p)
	}
	var calls sync.WaitGroup
	for node, parts := range nodes {
		calls.Go(func() { s.guardedSend(ctx, clock, node, parts) })
	}
	calls.Wait()
}

// guardedSend turns a panic, which is a bug, into an error of the hits of parts.
func (s *Store) guardedSend(ctx context.Context, clock *serverClock, node *redis.Client, parts []*part) {
	var err error
	defer func() {
		if errors.Is(err, split.ErrPanic) {
			s.counts.panics.Add(1)
			for _, p := range parts {
				p.err = err
			}
		}
	}()
	defer split.RecoverTo(&err)
	s.sendTo(ctx, clock, node, parts)
}

// sendTo sends parts to the node that should have them, in one pipeline. A part does not run if the node lacks the script, or
// if its time is unknown. Then the first of these parts is sent alone, which fixes both, and the others in a second pipeline.
// Parts that still did not run are sent one by one through the cluster client, which follows MOVED and ASK.
func (s *Store) sendTo(ctx context.Context, clock *serverClock, node *redis.Client, parts []*part) {
	if len(parts) > 1 {
		parts = s.sendTogether(ctx, clock, node, parts)
	}
	if len(parts) > 2 {
		parts[0].run(ctx, s.script, s.cluster, clock)
		parts = s.sendTogether(ctx, clock, node, parts[1:])
	}
	for _, p := range parts {
		p.run(ctx, s.script, s.cluster, clock)
	}
}

// sendTogether sends parts to a node in one pipeline and returns those that did not run. The pipeline is not the cluster
// client's, because that one waits for unreachable nodes, and then overwrites the replies of the others with its error.
func (s *Store) sendTogether(ctx context.Context, clock *serverClock, node *redis.Client, parts []*part) (rest []*part) {
	pipe := node.Pipeline()
	commands := make([]command, len(parts))
	for i, p := range parts {
		commands[i] = newCommand(ctx, clock, "evalsha", s.script.digest, p.batch)
		_ = pipe.Process(ctx, commands[i]) // only queues the command
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i, p := range parts {
		if p.reply, p.err = commands[i].reply(clock); didNotRun(p.err) || p.err == nil && p.reply.late() {
			rest = append(rest, p)
		}
	}
	return rest
}

// didNotRun reports whether a node replied that it has not run a command.
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
