package redisstore

import (
	"context"
	"errors"
	"fmt"
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
	reply any
	err   error
}

func (p *part) run(ctx context.Context, s script, c processor) {
	p.reply, p.err = s.run(ctx, c, p.batch)
}

func sameSlot(keys []string) bool {
	if len(keys) == 1 {
		return true
	}
	first := slotOf(keys[0])
	for _, key := range keys[1:] {
		if slotOf(key) != first {
			return false
		}
	}
	return true
}

// takeSlots decides the hits of each slot by a call of their own.
func (s *Store) takeSlots(
	ctx context.Context, now time.Time, hits []limiters.Hit, keys []string, out []limiters.Verdict,
) error {
	slot := make([]int, len(hits))
	for i, key := range keys {
		slot[i] = int(slotOf(key))
	}
	for i, spans := range spanning(hits, slot) {
		if spans {
			slot[i], out[i] = -1, limiters.Verdict{Err: ErrGroupSpansSlots}
		}
	}
	return s.takeParts(ctx, now, split(now, hits, keys, slot), out)
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
func ties(now time.Time, b *batch) []*part {
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
	parts := split(now, b.hits, b.keys, class)
	for _, p := range parts {
		for i := range p.at {
			p.at[i] = b.place(p.at[i])
		}
	}
	return parts
}

// takeParts decides parts and writes their verdicts. The error says that all of them failed.
func (s *Store) takeParts(ctx context.Context, now time.Time, parts []*part, out []limiters.Verdict) error {
	s.send(ctx, parts)
	parts = s.sendApart(ctx, now, parts)
	hits, decided := 0, false
	var failed error
	for _, p := range parts {
		hits += len(p.hits)
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
		err := fmt.Errorf("redisstore: slot %d of %s: %w", slotOf(p.keys[0]), s.where, p.err)
		for i := range p.hits {
			out[p.place(i)] = limiters.Verdict{Err: err}
		}
	}
	if decided || failed == nil {
		return nil
	}
	return s.failed(hits, failed)
}

// sendApart sends those parts that were refused with TRYAGAIN once more, a call for each key or tied keys: while a slot
// moves, a node decides one key if it has it, and sends the caller on if not, but not several of which it has some.
func (s *Store) sendApart(ctx context.Context, now time.Time, parts []*part) []*part {
	var all, again []*part
	for _, p := range parts {
		if redis.IsTryAgainError(p.err) {
			again = append(again, ties(now, p.batch)...)
		} else {
			all = append(all, p)
		}
	}
	if len(again) == 0 {
		return parts
	}
	s.send(ctx, again)
	return append(all, again...)
}

// send sends each part in a call of its own: to one node all in one pipeline, to several nodes side by side.
func (s *Store) send(ctx context.Context, parts []*part) {
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
		calls.Go(func() { s.sendTo(ctx, node, parts) })
	}
	calls.Wait()
}

// sendTo sends parts to the node that should have them. Those that did not run there are sent by the cluster's client,
// which follows MOVED and ASK. It is not the cluster's client that makes the pipeline: where a node cannot be reached it
// would wait for it, and when the deadline has passed overwrite what the others have answered.
func (s *Store) sendTo(ctx context.Context, node *redis.Client, parts []*part) {
	if len(parts) == 1 {
		parts[0].run(ctx, s.script, s.cluster)
		return
	}
	pipe := node.Pipeline()
	commands := make([]command, len(parts))
	for i, p := range parts {
		commands[i] = newCommand(ctx, "evalsha", s.script.digest, p.batch)
		_ = pipe.Process(ctx, commands[i]) // is queued, no more
	}
	_, _ = pipe.Exec(ctx) // tells the first of the errors that the commands have
	for i, p := range parts {
		if p.reply, p.err = commands[i].Result(); didNotRun(p.err) {
			p.run(ctx, s.script, s.cluster)
		}
	}
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
