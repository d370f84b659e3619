package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// ErrGroupSpansSlots is the error of the hits of a group whose keys are in several slots of a cluster: no script can
// charge all of them or none. It was not charged. The keys of a group are in one slot if they are the same, or if
// Options.Tag says so.
var ErrGroupSpansSlots = errors.New("redisstore: a group over several slots of the cluster cannot be charged as one: " +
	"its keys need a common hash tag")

// A part is the hits of a call that are decided by one script call. If that fails, the verdicts of the other parts stand.
type part struct {
	limiters.Part
	keys  []string
	batch *batch
	reply reply
	err   error
}

func (p *part) run(ctx context.Context, s script, c processor, clock *clock) {
	p.reply, p.err = s.run(ctx, c, clock, p.batch)
}

// slotsOf returns the slot of each group, by its first key.
func slotsOf(groups []limiters.Group, keys []string) []int {
	slots, first := make([]int, len(groups)), 0
	for i, g := range groups {
		slots[i] = int(slotOf(keys[first]))
		first += len(g)
	}
	return slots
}

// spansSlots reports whether the keys of a group are in several slots.
func spansSlots(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return slotOf(key) != slotOf(keys[0]) })
}

func areEqual(slots []int) bool {
	return !slices.ContainsFunc(slots, func(s int) bool { return s != slots[0] })
}

// nodes are the nodes of a cluster, each with a lane of its own: one that is slow or gone holds up its own hits and no
// others.
type nodes struct {
	store   *Store
	newLane func(decide) *lane

	mu    sync.Mutex
	lanes map[string]*lane // by address
}

// mostNodes is how many addresses are remembered. Nodes come and go, a cluster has a thousand of them at most, and the lane
// of one that is forgotten is made anew.
const mostNodes = 1024

// take decides hits on the nodes that have their slots.
func (n *nodes) take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	// Who has to learn the slots first waits for that too.
	ctx, cancel := context.WithTimeout(ctx, n.store.timeout)
	defer cancel()
	keys := n.store.names.keys(groups)
	slots, homes, first, spans := slotsOf(groups, keys), make([]*lane, len(groups)), 0, false
	for i, g := range groups {
		own := keys[first : first+len(g)]
		if len(g) > 1 && spansSlots(own) {
			spans = true
			for j := range g {
				out[first+j] = limiters.Verdict{Err: ErrGroupSpansSlots}
			}
		} else if j := slices.Index(slots[:i], slots[i]); j >= 0 && homes[j] != nil {
			homes[i] = homes[j] // and so in order
		} else {
			l, err := n.laneOf(ctx, own[0])
			if err != nil {
				// Nobody knows the slots: nothing is sent.
				return err
			}
			homes[i] = l
		}
		first += len(g)
	}
	if !spans && !slices.ContainsFunc(homes, func(l *lane) bool { return l != homes[0] }) {
		return homes[0].Take(ctx, now, groups, out)
	}
	var split limiters.Split
	first = 0
	for i, g := range groups {
		if homes[i] != nil {
			split.Add(homes[i], g, first)
		}
		first += len(g)
	}
	return split.Take(ctx, now, out)
}

// laneOf is the lane of the node that has a key.
func (n *nodes) laneOf(ctx context.Context, key string) (*lane, error) {
	node, err := n.store.cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	addr := node.Options().Addr
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.lanes[addr]
	if l == nil {
		if len(n.lanes) >= mostNodes {
			maps.DeleteFunc(n.lanes, func(_ string, l *lane) bool { return l.idle() })
		}
		clock := newClock()
		way := n.store.newRecovery()
		l = n.newLane(func(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
			err := n.decide(ctx, clock, now, groups, out)
			if err != nil {
				n.recover(ctx, way, &groups[0][0], err)
			}
			return err
		})
		n.lanes[addr] = l
	}
	return l, nil
}

// recover does, after a call that failed, what the next needs. The node is asked for anew: it may have come and gone.
func (n *nodes) recover(ctx context.Context, way *recovery, hit *limiters.Hit, err error) {
	n.store.slotsFailed(err)
	if node, err2 := n.store.cluster.MasterForKey(ctx, n.store.names.key(hit)); err2 == nil {
		way.after(err, node)
	}
}

// slotsFailed has the slots asked for anew, while calls go on, where an error may mean that another node has them by now.
// By itself go-redis does so every minute, and when a node sends it on.
func (s *Store) slotsFailed(err error) {
	if err != nil && slotsAreElsewhere(err) {
		s.cluster.ReloadState(context.Background())
	}
}

// wait waits until no lane is at work.
func (n *nodes) wait() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.lanes {
		l.served.Wait()
	}
}

// decide decides hits, those of each slot by a call of their own.
func (n *nodes) decide(
	ctx context.Context, clock *clock, now time.Time, groups []limiters.Group, out []limiters.Verdict,
) error {
	s := n.store
	keys := s.names.keys(groups)
	if slots := slotsOf(groups, keys); !areEqual(slots) {
		return s.takeParts(ctx, clock, split(now, groups, keys, slots, func(hit int) int { return hit }), out)
	}
	b := newBatch(now, groups, keys)
	r, err := s.script.run(ctx, s.cluster, clock, b)
	if redis.IsTryAgainError(err) {
		return s.takeParts(ctx, clock, ties(now, groups, keys, func(hit int) int { return hit }), out)
	}
	if err != nil {
		return err
	}
	return b.read(r, out)
}

// split makes a part of the groups of each class, in their order. at returns the index in the whole Take of a hit in groups.
func split(now time.Time, groups []limiters.Group, keys []string, class []int, at func(hit int) int) []*part {
	byClass, first := map[int]*part{}, 0
	var parts []*part
	for i, g := range groups {
		p := byClass[class[i]]
		if p == nil {
			p = &part{}
			byClass[class[i]] = p
			parts = append(parts, p)
		}
		p.Add(g, at(first))
		p.keys = append(p.keys, keys[first:first+len(g)]...)
		first += len(g)
	}
	for _, p := range parts {
		p.batch = newBatch(now, p.Groups, p.keys)
	}
	return parts
}

// ties makes a part of each key, with all keys that groups tie to it.
func ties(now time.Time, groups []limiters.Group, keys []string, at func(hit int) int) []*part {
	class, byKey, first := make([]int, len(groups)), map[string]int{}, 0
	for i, g := range groups {
		class[i] = i
		for _, key := range keys[first : first+len(g)] {
			j, known := byKey[key]
			if !known {
				byKey[key] = i
				continue
			}
			from, to := class[i], class[j]
			for k := range class[:i+1] {
				if class[k] == from {
					class[k] = to
				}
			}
		}
		first += len(g)
	}
	return split(now, groups, keys, class, at)
}

// takeParts decides parts and writes their verdicts. The error says that all of them failed.
func (s *Store) takeParts(ctx context.Context, clock *clock, parts []*part, out []limiters.Verdict) error {
	s.send(ctx, clock, parts)
	parts = s.sendApart(ctx, clock, parts)
	decided := false
	var failed error
	for _, p := range parts {
		p.Verdicts = make([]limiters.Verdict, p.Len())
		err := p.err
		if err == nil {
			err = p.batch.read(p.reply, p.Verdicts)
		}
		if err == nil {
			decided = true
			p.Scatter(out, nil)
			continue
		}
		if failed == nil {
			failed = err
		}
		s.slotsFailed(err)
		p.Scatter(out, fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(p.keys[0]), s.where, err))
	}
	if decided || failed == nil {
		return nil
	}
	return failed
}

// sendApart sends those parts that were refused with TRYAGAIN once more, a call for each key or tied keys: while a slot
// moves, a node decides one key if it has it, and sends the caller on if not, but not several of which it has some.
func (s *Store) sendApart(ctx context.Context, clock *clock, parts []*part) []*part {
	var all, again []*part
	for _, p := range parts {
		if redis.IsTryAgainError(p.err) {
			again = append(again, ties(p.batch.now, p.Groups, p.keys, p.At)...)
		} else {
			all = append(all, p)
		}
	}
	if len(again) == 0 {
		return parts
	}
	s.send(ctx, clock, again)
	return append(all, again...)
}

// send sends each part in a call of its own: to one node all in one pipeline, to several nodes side by side.
func (s *Store) send(ctx context.Context, clock *clock, parts []*part) {
	nodes := map[*redis.Client][]*part{}
	for _, p := range parts {
		node, err := s.cluster.MasterForKey(ctx, p.keys[0])
		if err != nil {
			// Nobody knows the slots: nothing was sent.
			for _, p := range parts {
				p.err = err
			}
			return
		}
		nodes[node] = append(nodes[node], p)
	}
	var calls sync.WaitGroup
	for node, parts := range nodes {
		calls.Go(func() { s.sendTo(ctx, clock, node, parts) })
	}
	calls.Wait()
}

// sendTo sends parts to the node that should have them. Those that did not run there are sent again: the first by itself,
// which brings the node the script, or us its time, and the others once more together. What is still left, the cluster's
// client sends, which follows MOVED and ASK.
func (s *Store) sendTo(ctx context.Context, clock *clock, node *redis.Client, parts []*part) {
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

// sendTogether sends parts to a node in one pipeline, and tells which of them did not run. It is not the cluster's client
// that makes the pipeline: where a node cannot be reached it would wait for it, and when the deadline has passed overwrite
// what the others have answered.
func (s *Store) sendTogether(ctx context.Context, clock *clock, node *redis.Client, parts []*part) (rest []*part) {
	pipe := node.Pipeline()
	commands := make([]command, len(parts))
	for i, p := range parts {
		commands[i] = newCommand(ctx, clock, "evalsha", s.script.digest, p.batch)
		_ = pipe.Process(ctx, commands[i]) // is queued, no more
	}
	_, _ = pipe.Exec(ctx) // tells the first of the errors that the commands have
	for i, p := range parts {
		if p.reply, p.err = commands[i].reply(clock); didNotRun(p.err) || p.err == nil && p.reply.late() {
			rest = append(rest, p)
		}
	}
	return rest
}

// didNotRun tells whether a node said that it has not run a command, and who will.
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
