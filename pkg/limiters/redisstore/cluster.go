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

// A part is those hits of a Take that are decided by one call. Its verdicts are its own: where the call fails, the
// verdicts of the other parts stand.
type part struct {
	*batch
	reply reply
	err   error
}

func (p *part) run(ctx context.Context, s script, c processor, clock *clock) {
	p.reply, p.err = s.run(ctx, c, clock, p.batch)
}

func slotsOf(keys []string) []int {
	slot := make([]int, len(keys))
	for i, key := range keys {
		slot[i] = int(slotOf(key))
	}
	return slot
}

func areEqual(slot []int) bool {
	return !slices.ContainsFunc(slot, func(s int) bool { return s != slot[0] })
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
func (n *nodes) take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	// Who has to learn the slots first waits for that too.
	ctx, cancel := context.WithTimeout(ctx, n.store.timeout)
	defer cancel()
	keys := n.store.names.keys(hits)
	slot, home := slotsOf(keys), make([]int, len(hits))
	spans := spanning(hits, slot)
	var lanes []*lane
	for i, key := range keys {
		if spans != nil && spans[i] {
			home[i], out[i] = -1, limiters.Verdict{Err: ErrGroupSpansSlots}
			continue
		}
		if j := slices.Index(slot[:i], slot[i]); j >= 0 && home[j] >= 0 {
			home[i] = home[j] // and so in order
			continue
		}
		l, err := n.laneOf(ctx, key)
		if err != nil {
			// Nobody knows the slots: nothing is sent.
			return err
		}
		if home[i] = slices.Index(lanes, l); home[i] < 0 {
			home[i] = len(lanes)
			lanes = append(lanes, l)
		}
	}
	if len(lanes) == 1 && spans == nil {
		return lanes[0].take(ctx, now, hits, out)
	}
	return takeApart(ctx, now, hits, out, home, lanes)
}

// takeApart decides each hit in the lane that it belongs to, or none where that is -1. The error says that all failed.
func takeApart(
	ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict, home []int, lanes []*lane,
) error {
	failed := make([]error, len(lanes))
	var calls sync.WaitGroup
	for j, l := range lanes {
		var part []limiters.Hit
		var at []int
		for i := range hits {
			if home[i] == j {
				part, at = append(part, hits[i]), append(at, i)
			}
		}
		calls.Go(func() {
			verdicts := make([]limiters.Verdict, len(part))
			failed[j] = l.take(ctx, now, part, verdicts)
			for k, i := range at {
				out[i] = verdicts[k]
				if failed[j] != nil {
					out[i] = limiters.Verdict{Err: failed[j]}
				}
			}
		})
	}
	calls.Wait()
	if len(lanes) == 0 || slices.Contains(failed, nil) {
		return nil
	}
	return failed[0]
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
		l = n.newLane(func(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
			err := n.decide(ctx, clock, now, hits, out)
			if err != nil {
				n.recover(ctx, way, &hits[0], err)
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
	ctx context.Context, clock *clock, now time.Time, hits []limiters.Hit, out []limiters.Verdict,
) error {
	s := n.store
	keys := s.names.keys(hits)
	if slot := slotsOf(keys); !areEqual(slot) {
		return s.takeParts(ctx, clock, split(now, hits, keys, slot), out)
	}
	b := newBatch(now, hits, keys)
	r, err := s.script.run(ctx, s.cluster, clock, b)
	if redis.IsTryAgainError(err) {
		return s.takeParts(ctx, clock, ties(b), out)
	}
	if err != nil {
		return err
	}
	return b.read(r, out)
}

// spanning tells which hits are of a group over several slots; nil if none is.
func spanning(hits []limiters.Hit, slot []int) []bool {
	var first map[uint16]int
	var wide map[uint16]bool
	for i := range hits {
		g := hits[i].Group
		if g == 0 {
			continue
		}
		if first == nil {
			first, wide = map[uint16]int{}, map[uint16]bool{}
		}
		if at, known := first[g]; !known {
			first[g] = slot[i]
		} else if at != slot[i] {
			wide[g] = true
		}
	}
	if len(wide) == 0 {
		return nil
	}
	spans := make([]bool, len(hits))
	for i := range hits {
		spans[i] = wide[hits[i].Group]
	}
	return spans
}

// split makes a part of the hits of each class, in their order. Hits of class -1 are left out.
func split(now time.Time, hits []limiters.Hit, keys []string, class []int) []*part {
	type piece struct {
		hits []limiters.Hit
		keys []string
		at   []int
	}
	pieces := map[int]*piece{}
	var order []*piece
	for i, c := range class {
		if c < 0 {
			continue
		}
		p := pieces[c]
		if p == nil {
			p = &piece{}
			pieces[c] = p
			order = append(order, p)
		}
		p.hits, p.keys, p.at = append(p.hits, hits[i]), append(p.keys, keys[i]), append(p.at, i)
	}
	parts := make([]*part, len(order))
	for i, p := range order {
		parts[i] = &part{batch: newBatch(now, p.hits, p.keys)}
		parts[i].at = p.at
	}
	return parts
}

// ties makes a part of each key of b, and of all keys that groups tie together.
func ties(b *batch) []*part {
	class := make([]int, len(b.hits))
	join := func(i, j int) {
		from, to := class[i], class[j]
		for k := range class {
			if class[k] == from {
				class[k] = to
			}
		}
	}
	keys, groups := map[string]int{}, map[uint16]int{}
	for i := range b.hits {
		class[i] = i
		if j, known := keys[b.keys[i]]; known {
			join(i, j)
		} else {
			keys[b.keys[i]] = i
		}
		g := b.hits[i].Group
		if g == 0 {
			continue
		}
		if j, known := groups[g]; known {
			join(i, j)
		} else {
			groups[g] = i
		}
	}
	parts := split(b.now, b.hits, b.keys, class)
	for _, p := range parts {
		for i := range p.at {
			p.at[i] = b.place(p.at[i])
		}
	}
	return parts
}

// takeParts decides parts and writes their verdicts. The error says that all of them failed.
func (s *Store) takeParts(ctx context.Context, clock *clock, parts []*part, out []limiters.Verdict) error {
	s.send(ctx, clock, parts)
	parts = s.sendApart(ctx, clock, parts)
	decided := false
	var failed error
	for _, p := range parts {
		if p.err == nil {
			p.err = p.read(p.reply, out)
		}
		if p.err == nil {
			decided = true
			continue
		}
		if failed == nil {
			failed = p.err
		}
		s.slotsFailed(p.err)
		err := fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(p.keys[0]), s.where, p.err)
		for i := range p.hits {
			out[p.place(i)] = limiters.Verdict{Err: err}
		}
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
			again = append(again, ties(p.batch)...)
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
