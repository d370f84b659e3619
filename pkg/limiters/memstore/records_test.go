package memstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// Compares the index with a map, while keys are added, moved and removed. Many hashes are equal.
func TestIndexMatchesMap(t *testing.T) {
	for seed := range limiterstest.Seeds(30) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var x index
		want := map[position]uint32{}
		var positions []position
		hashes := []uint32{1, 20, 3000, 1 << 31}[seed%4]
		for step := range 6000 {
			grow := step%3000 < 1000 // and then shrink
			switch p := position(rnd.Uint32N(1<<20) + 1); {
			case len(positions) == 0 || rnd.IntN(10) < 8 == grow:
				if _, found := want[p]; !found {
					// Hashes at both ends: where the cells wrap around.
					hash := rnd.Uint32N(hashes) * (1 - 2*rnd.Uint32N(2))
					x.add(hash, p)
					want[p], positions = hash, append(positions, p)
				}
			case rnd.IntN(3) == 0:
				i := rnd.IntN(len(positions))
				if _, found := want[p]; !found {
					x.move(want[positions[i]], positions[i], p)
					want[p] = want[positions[i]]
					delete(want, positions[i])
					positions[i] = p
				}
			default:
				i := rnd.IntN(len(positions))
				x.remove(want[positions[i]], positions[i])
				delete(want, positions[i])
				positions[i] = positions[len(positions)-1]
				positions = positions[:len(positions)-1]
			}
			if step%100 == 0 {
				checkIndex(t, &x, want)
			}
		}
	}
}

func checkIndex(t *testing.T, x *index, want map[position]uint32) {
	t.Helper()
	if x.n != len(want) {
		t.Fatalf("%d keys, want %d", x.n, len(want))
	}
	if len(x.cells) > max(4*minCells, 4*x.n) || x.n*5 > len(x.cells)*4 {
		t.Fatalf("%d keys in %d cells", x.n, len(x.cells))
	}
	held := 0
	for _, cell := range x.cells {
		if cell != 0 {
			held++
		}
	}
	if held != len(want) {
		t.Fatalf("%d cells are taken, by %d keys", held, len(want))
	}
	for p, hash := range want {
		i := x.home(hash)
		for x.cells[i] != uint64(hash)<<32|uint64(p) {
			if x.cells[i] == 0 {
				t.Fatalf("%d of hash %d is not found", p, hash)
			}
			i = x.next(i)
		}
	}
}

// Compares a shard with a map, with keys of all lengths under every algorithm. Records that are
// removed, in any order, leave nothing behind.
func TestShardMatchesMap(t *testing.T) {
	type known struct {
		p     position
		state limiters.State
	}
	var limits []*limiters.Limit
	for _, name := range limiterstest.WindowedAlgorithms() {
		for _, window := range []time.Duration{time.Minute, time.Hour} {
			limits = append(limits, limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 9, Window: window}))
		}
	}
	for seed := range limiterstest.Seeds(8) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := New(Options{})
		sh := &s.shards[0]
		type id struct {
			key   string
			limit *limiters.Limit
		}
		want := map[id]*known{}
		// Few hashes: keys differ only in their text and their limit.
		hash := func(k id) uint32 { return uint32(len(k.key)%3) << 30 }
		for step := range 4000 {
			k := id{strings.Repeat(string(rune('a'+rnd.IntN(3))), rnd.IntN(300)), limits[rnd.IntN(len(limits))]}
			w := want[k]
			if p := sh.find(hash(k), k.key, k.limit.StateID()); (p == 0) != (w == nil) {
				t.Fatalf("seed %d, step %d: key of %d bytes: found at %d, known: %v", seed, step, len(k.key), p, w)
			} else if w != nil {
				w.p = p
			}
			switch {
			case w == nil && (step < 3000 || rnd.IntN(4) == 0):
				p := s.insertRecord(sh, hash(k), k.key, k.limit, needsHeapState(k.limit))
				if p == 0 {
					t.Fatal("no room")
				}
				w = &known{p: p}
				want[k] = w
				fallthrough
			case w != nil && rnd.IntN(2) == 0:
				r := sh.record(w.p)
				var got limiters.State
				if sh.readState(r, &got); got != w.state {
					t.Fatalf("seed %d, step %d: %+v, want %+v", seed, step, got, w.state)
				}
				words := [3]int64{rnd.Int64() - 1<<62, rnd.Int64(), rnd.Int64()}
				w.state = *stateOf(words[:k.limit.StateWords()]...)
				if k.limit.Grows() {
					w.state.Log = &limiters.Log{}
				}
				s.bytes.Add(int64(w.state.HeapBytes() - got.HeapBytes()))
				sh.writeState(r, &w.state)
			case w != nil:
				s.removeRecord(sh, w.p)
				delete(want, k)
			}
		}
		if got := s.Stats().Keys; got != int64(len(want)) {
			t.Fatalf("%d keys, want %d", got, len(want))
		}
		for k, w := range want {
			var got limiters.State
			p := sh.find(hash(k), k.key, k.limit.StateID())
			if p == 0 {
				t.Fatalf("seed %d: a key of %d bytes was lost", seed, len(k.key))
			}
			if sh.readState(sh.record(p), &got); got != w.state {
				t.Fatalf("seed %d: %+v, want %+v", seed, got, w.state)
			}
			s.removeRecord(sh, p)
		}
		if got := s.Stats(); got.Keys != 0 || got.Bytes != 0 {
			t.Errorf("seed %d: all are removed, but %+v is left", seed, got)
		}
		used := 0
		for i := range sh.slabs.table.items {
			used += len(sh.slabs.table.items[i].bytes)
		}
		if used > lengthCount*slabLen(0) || len(sh.limits.bySpec)+len(sh.heapStates.items)+len(sh.longKeys.items)+len(sh.limits.table.items) > 0 {
			t.Errorf("seed %d: all are removed, but %d bytes of slabs, %d limits, %d heap states, %d long keys are left", seed, used,
				len(sh.limits.bySpec), len(sh.heapStates.items), len(sh.longKeys.items))
		}
	}
}

// Slabs are reused, in whatever order keys are added and removed.
func TestSlabsAreReused(t *testing.T) {
	if testing.Short() {
		t.Skip("200,000 keys on one goroutine: not with -short")
	}
	s := New(Options{})
	slabs := func() (n int) {
		for i := range s.shards {
			for j := range s.shards[i].slabs.table.items {
				n += len(s.shards[i].slabs.table.items[j].bytes)
			}
		}
		return n
	}
	const keys = 20_000
	first := 0
	for round := range 10 {
		for i := range keys {
			hit(t, s, fmt.Sprintf("round %d %05d", round, i), 1, hourly)
		}
		if first == 0 {
			first = slabs()
		}
		advance(s, 2*time.Hour)
	}
	if got := slabs(); got > 2*first {
		t.Errorf("%d bytes of slabs for %d keys in ten rounds, and %d in one", got, s.Stats().Keys, first)
	}
}

// Every reload makes its limits again. The store keeps one of equal limits, and none without a key.
func TestReloadsKeepOneLimitPerSpec(t *testing.T) {
	s := New(Options{})
	take := func(key string, max int64) {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: max, Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}})
		mustTake(t, s, limiters.Op{Key: key, Limit: limit, Hits: 1})
	}
	kept := func() (n, table int) {
		for i := range s.shards {
			n += len(s.shards[i].limits.bySpec)
			table += len(s.shards[i].limits.table.items)
		}
		return n, table
	}
	const keys = 50
	for reload := range int64(400) {
		for k := range keys {
			take(fmt.Sprint(k), 10) // the first limit again
			// Another maximum each time: the newest is the smallest.
			take(fmt.Sprint("tightened ", k), 1_000_000-reload)
		}
	}
	if n, table := kept(); n > 2*keys || table > 4*keys {
		t.Errorf("after 400 reloads %d limits are kept for %d keys, in tables of %d", n, 2*keys, table)
	}
	advance(s, 3*time.Hour)
	for i := range 5000 {
		take(fmt.Sprint("later ", i), 7)
	}
	if n, _ := kept(); n > shardCount {
		t.Errorf("all keys are under one limit now, and %d are kept", n)
	}
}

// A request may carry its limit, so a client can choose windows. Their hashes under a fixed factor
// are known to it.
func TestChosenWindowsOfAKeySpreadOverTheIndexes(t *testing.T) {
	const factor = 0x9e3779b97f4a7c15
	s := New(Options{})
	records, perArc := 0, map[[2]uint64]int{} // by shard and the first bits of the hash
	for seconds := uint64(1); records < 4096; seconds++ {
		window := seconds * uint64(time.Second)
		if window*factor>>57 != 0 {
			continue
		}
		records++
		shard, hash := s.locate("k", time.Duration(window))
		perArc[[2]uint64{shard, uint64(hash >> 28)}]++
	}
	if most := slices.Max(slices.Collect(maps.Values(perArc))); most > 16 { // one is expected
		t.Errorf("%d of %d records are in one sixteenth of an index", most, records)
	}
}

// The text of a key may be part of a message that is freed or overwritten.
func TestKeyTextIsCopied(t *testing.T) {
	s := New(Options{})
	for _, n := range []int{0, 1, 40, maxKeyBytes - 1, maxKeyBytes, maxKeyBytes + 1, 5000} {
		message := newReusedBuffer(n)
		hit(t, s, message.key(), 1, hourly)
		message.overwrite()
		if v := hit(t, s, newReusedBuffer(n).key(), 1, hourly); v.Used != 2 {
			t.Errorf("a key of %d bytes after its message was overwritten: %+v, want the second hit", n, v)
		}
	}
}

// Known keys do not allocate: one, several, or a group.
func TestTakeOfKnownKeyDoesNotAllocate(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	s, algorithms := New(Options{}), limiterstest.WindowedAlgorithms()
	for _, count := range []int{1, 5, 8, 100} {
		for _, together := range []bool{false, true} {
			ops, out := make([]limiters.Op, count), make([]limiters.Verdict, count)
			for i := range ops {
				spec := limiters.Spec{Algorithm: algorithms[i%len(algorithms)], Max: 100_000, Window: time.Millisecond}
				ops[i] = limiters.Op{Key: fmt.Sprint("key ", i), Limit: limiterstest.MustLimit(spec), Hits: 1}
			}
			groups := limiters.Singles(ops...)
			if together {
				groups = []limiters.Group{ops}
			}
			now := time.Now()
			take := func() {
				now = now.Add(200 * time.Microsecond)
				must.Succeed(t, s.TakeAt(ctx, now, groups, out))
			}
			for range 20 {
				take()
			}
			// The race detector empties a sync.Pool at random: now and then something is allocated.
			n := testing.AllocsPerRun(3, take)
			for range 20 {
				n = min(n, testing.AllocsPerRun(3, take))
			}
			if n > 0 {
				t.Errorf("%d operations, one group: %t: %v allocations", count, together, n)
			}
		}
	}
}

// Compares the heap and the accounted bytes per key of 40 bytes.
func TestMemoryPerKeyIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory on one goroutine: not with -short")
	}
	const keys, maxPerKey = 200_000, 120
	for _, name := range []string{"fixed_window", "funnel"} {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 5, Window: time.Hour})
		before, s := heap(), New(Options{})
		ops, out := make([]limiters.Op, 1), make([]limiters.Verdict, 1)
		for i := range keys {
			ops[0] = limiters.Op{Key: fmt.Sprintf("%040d", i), Limit: limit, Hits: 1}
			must.Succeed(t, s.Take(context.Background(), limiters.Singles(ops...), out))
		}
		took := int64(heap() - before)
		if took > keys*maxPerKey {
			t.Errorf("%s: %d bytes a key, want at most %d", name, took/keys, maxPerKey)
		}
		if accounted := s.Stats().Bytes; accounted < took*8/10 || accounted > took*11/10 {
			t.Errorf("%s: %d bytes a key are accounted, %d taken", name, accounted/keys, took/keys)
		}
		runtime.KeepAlive(s)
	}
}

// keysOf returns keys whose records under the limits are all in the first shard.
func keysOf(s *Store, n int, l *limiters.Limit) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		key := fmt.Sprintf("%d%s", i, strings.Repeat("-", i%9))
		if shard, _ := s.locate(key, l.Window()); shard == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// A sweep skips only slabs and shards without expired records. In the end it has removed every
// expired record.
func TestSweepRemovesEveryExpiredKey(t *testing.T) {
	for seed := range limiterstest.Seeds(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		now := time.Now()
		s := storeAt(&now)
		sh := &s.shards[0]
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 100, Window: 1000 * time.Second})
		keys := keysOf(s, 400, limit)
		take := func(key string, n int64) { mustTake(t, s, limiters.Op{Key: key, Limit: limit, Hits: n}) }
		for step := range 3000 {
			// Each hit takes ten seconds to leave.
			take(keys[rnd.IntN(len(keys))], rnd.Int64N(40)-10)
			now = now.Add(time.Duration(rnd.Int64N(3)) * time.Second * time.Duration(1+step/300%2*5))
			checkExpiryBounds(t, sh, seed, step)
		}
		now = now.Add(time.Hour)
		for range 2 * len(keys) {
			take(keys[0], 1)
			take(keys[0], -1)
			checkExpiryBounds(t, sh, seed, -1)
		}
		take(keys[0], 1)
		if n := sh.recordCount.Load(); n != 1 || sh.expiryBound <= s.clock() {
			t.Errorf("seed %d: %d keys are left, want one; the first expires at %d, and it is %d", seed, n, sh.expiryBound, s.clock())
		}
	}
}

// checkExpiryBounds checks that no record expires before the bound of its slab and of its shard.
func checkExpiryBounds(t *testing.T, sh *shard, seed uint64, step int) {
	t.Helper()
	for i := range sh.slabs.table.items {
		sl := &sh.slabs.table.items[i]
		for row := range int(sl.rows) {
			if expiry := sl.record(row).expiry(); expiry < sl.expiryBound || expiry < sh.expiryBound {
				t.Fatalf("seed %d, step %d: record %d of slab %d expires at %d, before %d of its slab or %d of its shard",
					seed, step, row, i, expiry, sl.expiryBound, sh.expiryBound)
			}
		}
	}
}

// Records with equal hashes differ by their limits, in one call too.
func TestAlgorithmsOfOneWindowShareNoState(t *testing.T) {
	s := New(Options{})
	var ops []limiters.Op
	for _, name := range limiterstest.WindowedAlgorithms() {
		ops = append(ops, limiters.Op{Key: "k", Hits: 1,
			Limit: limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 3, Window: time.Hour})})
	}
	ops = append(ops, limiters.Op{Key: "k", Hits: 1, Limit: limiterstest.MustLimit(hourly)})
	for i := range int64(3) {
		out := make([]limiters.Verdict, len(ops))
		must.Succeed(t, s.Take(context.Background(), limiters.Singles(ops...), out))
		for j, v := range out {
			if want := min(i+1, ops[j].Limit.Capacity()); v.Used != want {
				t.Errorf("call %d, %s: %+v, want %d used", i, ops[j].Limit.StateID(), v, want)
			}
		}
	}
	if got := s.Stats().Keys; got != int64(len(ops)) {
		t.Errorf("%d keys, want %d", got, len(ops))
	}
}

// stateOf returns the state of some words.
func stateOf(words ...int64) *limiters.State {
	var b []byte
	for _, word := range words {
		b = binary.LittleEndian.AppendUint64(b, uint64(word))
	}
	var s limiters.State
	s.SetWords(b)
	return &s
}
