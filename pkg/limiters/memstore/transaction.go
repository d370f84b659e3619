package memstore

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A transaction decides the operations of one call, while it holds the locks of their shards.
type transaction struct {
	store        *Store
	storeNow     int64 // the time by the store's clock
	ops          locatedOps
	states       []limiters.State  // one for each operation; the state of a key is that of its first operation
	stateOf      []*limiters.State // the state of each operation's key, in states
	growFunc     limiters.GrowFunc // the method grow, stored because a method value is allocated at each use
	locked       shardSet
	decidedAt    int64 // the time of the decision
	expiryMargin int64 // the time added to expiries, in µs
	// order exceeds that of every earlier Take of these shards with the same storeNow, or is the
	// largest order below limiters.OrderAfterStore.
	order uint16
}

// transactionPool lets a Take of known keys allocate nothing.
var transactionPool = sync.Pool{New: func() any {
	t := &transaction{}
	t.growFunc = t.grow
	return t
}}

// maxPooledOps bounds the operations of a transaction that is reused.
const maxPooledOps = 256

// begin prepares t for a Take of n operations.
func (t *transaction) begin(s *Store, n int) {
	t.store = s
	if n > cap(t.ops) {
		t.ops, t.states, t.stateOf = make(locatedOps, n), make([]limiters.State, n), make([]*limiters.State, n)
	}
	t.ops, t.states, t.stateOf = t.ops[:n], t.states[:n], t.stateOf[:n]
}

// release clears the transaction and returns it to the pool, unless it is unusually large.
func (t *transaction) release() {
	if cap(t.ops) > maxPooledOps {
		return
	}
	clear(t.ops)
	clear(t.states)
	t.store, t.locked = nil, shardSet{}
	transactionPool.Put(t)
}

// A locatedOp is an operation with the location of its record. Of the operations on one key, only
// the first has a position and a size.
type locatedOp struct {
	op        *limiters.Op
	shard     *shard
	hash      uint32
	first     int      // the index of the first operation on the key
	position  position // the position of the record; 0: there is none
	heapBytes int      // [limiters.State.HeapBytes] of the state when it was read
}

// locatedOps are the operations of a Take. Each has the position of its record, even if the
// removal of another record has moved it.
type locatedOps []locatedOp

// contains reports whether ops has an operation on a record.
func (ops locatedOps) contains(sh *shard, p position) bool {
	for i := range ops {
		if located := &ops[i]; located.position == p && located.shard == sh {
			return true
		}
	}
	return false
}

// updatePosition updates the position of a record that the removal of another record has moved.
func (ops locatedOps) updatePosition(sh *shard, from, to position) {
	for i := range ops {
		if located := &ops[i]; located.position == from && located.shard == sh {
			located.position = to
		}
	}
}

// A shardSet is a bit set of shards. Its order is the locking order.
type shardSet [shardCount / 64]uint64

// all yields the numbers of the shards in order.
func (set *shardSet) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range set {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// locate returns the number of the shard of a key under limits of a window, and its hash there. A
// client can choose windows, because a request may carry its limit. So the window is multiplied by
// the hash of the key, which depends on the secret seed: otherwise the records of chosen windows
// could be neighbors in an index.
func (s *Store) locate(key string, window time.Duration) (shard uint64, hash uint32) {
	h := maphash.String(s.seed, key)
	high, low := bits.Mul64(h^uint64(window)*0x9e3779b97f4a7c15, h|1) // the factor is 2^64 over the golden ratio
	mixed := high ^ low
	return mixed % shardCount, uint32(mixed >> 32)
}

// findShards finds the shard of each key.
func (t *transaction) findShards(groups []limiters.Group) {
	ops := t.ops
	for _, g := range groups {
		for i := range g {
			located := &ops[i]
			n, hash := t.store.locate(g[i].Key, g[i].Limit.Window())
			located.op, located.shard, located.hash = &g[i], &t.store.shards[n], hash
			t.locked[n/64] |= 1 << (n % 64)
		}
		ops = ops[len(g):]
	}
}

// lock locks the shards and sets the times. To hold the locks briefly, it reads the clock before
// locking. If the latest time of a shard is later, lock uses that time. Otherwise a Take that
// waited for a lock could find states from the future, and discard states that are more than a
// window ahead.
func (t *transaction) lock(now time.Time) {
	t.storeNow, t.order = t.store.clock(), 0
	for i := range t.locked.all() {
		sh := &t.store.shards[i]
		sh.mu.Lock()
		switch {
		case sh.latest > t.storeNow:
			t.storeNow, t.order = sh.latest, sh.order+1
		case sh.latest == t.storeNow:
			t.order = max(t.order, sh.order+1)
		}
	}
	t.order = min(t.order, limiters.OrderAfterStore-1)
	t.decidedAt, t.expiryMargin = t.storeNow, 0
	if !now.IsZero() {
		t.decidedAt, t.expiryMargin = now.UnixMicro(), callerExpiryMargin
	}
}

func (t *transaction) unlock() {
	for i := range t.locked.all() {
		t.store.shards[i].mu.Unlock()
	}
}

// updateShards sets the latest time and order of the shards, and removes some expired records.
func (t *transaction) updateShards() {
	for i := range t.locked.all() {
		sh := &t.store.shards[i]
		sh.latest, sh.order = t.storeNow, t.order
		t.store.sweepStep(sh, t.storeNow)
	}
}

// loadStates reads the state of each key.
func (t *transaction) loadStates() {
	for i := range t.ops {
		first := t.firstOnKey(i)
		t.ops[i].first, t.stateOf[i] = first, &t.states[first]
		if first == i {
			t.loadState(i)
		}
	}
}

// grow is the [limiters.GrowFunc] of the transaction. It frees memory for operation i to enlarge
// the state of its key, and adds a record for a new key. A record with extra state replaces one
// that another limit made without it; writeBack writes the words that were read before.
func (t *transaction) grow(i int) error {
	op, located := t.ops[i].op, &t.ops[t.ops[i].first]
	isNew := located.position == 0
	if (isNew || op.Limit.Grows()) && !t.store.freeMemory(located.shard, isNew, t.storeNow, t.ops) {
		return ErrFull
	}
	old := located.position // an eviction may have moved the record
	if !isNew && (!op.Limit.UsesExtraState() || located.shard.record(old).hasHeapState()) {
		return nil
	}
	p := t.store.insertRecord(located.shard, located.hash, op.Key, op.Limit, needsHeapState(op.Limit))
	if p == 0 {
		return ErrFull
	}
	located.position = p
	if !isNew {
		t.removeRecord(located.shard, old)
	}
	return nil
}

// removeRecord removes a record that no operation uses.
func (t *transaction) removeRecord(sh *shard, p position) {
	t.ops.updatePosition(sh, t.store.removeRecord(sh, p), p)
}

// firstOnKey returns the first operation on the key of operation i.
func (t *transaction) firstOnKey(i int) int {
	hash, op := t.ops[i].hash, t.ops[i].op
	for j := range i {
		other := &t.ops[j]
		if other.hash == hash && other.first == j && other.op.Key == op.Key && other.op.Limit.StateID() == op.Limit.StateID() {
			return j
		}
	}
	return i
}

// loadState finds the record of operation i and reads the state.
func (t *transaction) loadState(i int) {
	located := &t.ops[i]
	located.position = located.shard.find(located.hash, located.op.Key, located.op.Limit.StateID())
	if located.position != 0 {
		located.shard.readState(located.shard.record(located.position), &t.states[i])
		located.heapBytes = t.states[i].HeapBytes()
	}
}

// writeBack writes states and expiries, and removes records of zero states.
func (t *transaction) writeBack() {
	for i := range t.ops {
		l, first, s := t.ops[i].op.Limit, t.ops[i].first, t.stateOf[i]
		located := &t.ops[first]
		if located.position == 0 {
			continue
		}
		r := located.shard.record(located.position)
		if first == i {
			located.shard.writeState(r, s)
			if size := s.HeapBytes(); size != located.heapBytes {
				t.store.bytes.Add(int64(size - located.heapBytes))
			}
			if s.IsZero() {
				p := located.position
				located.position = 0
				t.removeRecord(located.shard, p)
				continue
			}
		}
		t.store.keepTightest(located.shard, r, l, t.storeNow)
		expiry := t.storeNow + max(0, l.ResetTime(s)-t.decidedAt) + t.expiryMargin
		if s.Extra != nil {
			// Another limit may need the extra state for longer.
			expiry = max(expiry, r.expiry())
		}
		located.shard.setExpiry(located.position, expiry)
	}
}
