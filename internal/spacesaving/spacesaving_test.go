package spacesaving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// An add is one call of Add.
type add struct {
	key uint64
	n   uint64
}

// expectBounds compares a sketch with the true counts of its stream.
func expectBounds(t *testing.T, s *Sketch[uint64], adds []add) {
	t.Helper()
	truth, total := map[uint64]uint64{}, uint64(0)
	for _, a := range adds {
		truth[a.key] += a.n
		total += a.n
	}
	if s.total != total {
		t.Errorf("total %d, want %d", s.total, total)
	}
	bound := s.MaxError()
	if bound > total/uint64(cap(s.keys)) {
		t.Errorf("max error %d, more than %d / %d", bound, total, cap(s.keys))
	}
	items := Top(math.MaxInt, s.List())
	expectItems(t, items, truth, bound)
	if n := len(items); n == cap(s.keys) && items[n-1].Count != bound {
		t.Errorf("max error %d, want the smallest count %d", bound, items[n-1].Count)
	}
	if len(s.indexOf) != len(s.keys) || len(s.heap) != len(s.keys) || len(s.keys) > cap(s.keys) {
		t.Errorf("%d hashes, %d counters and %d keys", len(s.indexOf), len(s.heap), len(s.keys))
	}
}

// expectItems checks that every count is within its error, no error is above the bound, and no key
// above the bound is missing.
func expectItems(t *testing.T, items []Item[uint64], truth map[uint64]uint64, bound uint64) {
	t.Helper()
	kept := map[uint64]bool{}
	for i, item := range items {
		kept[item.Hash] = true
		if have := truth[item.Hash]; item.Value != item.Hash || have > item.Count || have < item.Count-item.Error || item.Error > item.Count {
			t.Errorf("key %d: the true count %d is not from %d - %d to %d", item.Hash, have, item.Count, item.Error, item.Count)
		}
		if item.Error > bound {
			t.Errorf("key %d: the error %d is more than %d", item.Hash, item.Error, bound)
		}
		if i > 0 && Compare(items[i-1], item) >= 0 {
			t.Errorf("%+v comes before %+v", items[i-1], item)
		}
	}
	for key, count := range truth {
		if count > bound && !kept[key] {
			t.Errorf("key %d with the true count %d above the bound %d is missing", key, count, bound)
		}
	}
}

func feed(s *Sketch[uint64], adds []add) {
	for _, a := range adds {
		s.Add(a.key, a.key, a.n)
	}
}

func stream(random *rand.Rand, n int) []add {
	keys := 1 + random.Uint64N(200)
	adds := make([]add, n)
	for i := range adds {
		adds[i] = add{random.Uint64N(1+random.Uint64N(keys)) * 0x9e3779b97f4a7c15, 1}
		if random.IntN(4) == 0 {
			adds[i].n = random.Uint64N(1000)
		}
	}
	return adds
}

func TestCountsAreWithinTheirErrorOnRandomStreams(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		s, adds := New[uint64](1+random.IntN(50)), stream(random, random.IntN(2000))
		feed(s, adds)
		expectBounds(t, s, adds)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzSketch(f *testing.F) {
	f.Add([]byte("\x03abcabcddddee"))
	f.Add([]byte("\x01\x00\xff\x00"))
	f.Add([]byte("\x00abc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		s := New[uint64](int(data[0] % 16))
		var adds []add
		for _, b := range data[1:] {
			adds = append(adds, add{uint64(b % 32), uint64(b / 32)})
		}
		feed(s, adds)
		expectBounds(t, s, adds)
	})
}

// A stream is counted in parts, as a server counts it by shards and by minutes.
func TestMergedCountsAreWithinTheSumOfTheErrors(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		truth, bound := map[uint64]uint64{}, uint64(0)
		var parts []List[uint64]
		for range 1 + random.IntN(4) {
			s, adds := New[uint64](1+random.IntN(40)), stream(random, random.IntN(1000))
			feed(s, adds)
			for _, a := range adds {
				truth[a.key] += a.n
			}
			parts, bound = append(parts, s.List()), bound+s.MaxError()
		}
		expectItems(t, Top(math.MaxInt, parts...), truth, bound)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestTopTenOfAZipfLoadIsFound(t *testing.T) {
	const size, adds = 1000, 500_000
	for _, s := range []float64{1.05, 1.2, 1.5} {
		t.Run(fmt.Sprint(s), func(t *testing.T) {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), s, 1, 1_000_000)
			sketch, truth := New[uint64](size), map[uint64]uint64{}
			for range adds {
				key := zipf.Uint64()
				truth[key]++
				sketch.Add(key, key, 1)
			}
			var busiest []Item[uint64]
			for key, count := range truth {
				busiest = append(busiest, Item[uint64]{Hash: key, Count: count})
			}
			slices.SortFunc(busiest, Compare[uint64])
			top := Top(10, sketch.List())
			if len(top) != 10 {
				t.Fatalf("%d keys, want 10", len(top))
			}
			if bound := sketch.MaxError(); bound > adds/size {
				t.Errorf("max error %d, want at most %d", bound, adds/size)
			}
			for i, item := range top {
				if item.Hash != busiest[i].Hash || busiest[i].Count > item.Count || busiest[i].Count < item.Count-item.Error {
					t.Errorf("number %d is key %d with %d ± %d, want key %d with %d", i+1, item.Hash, item.Count, item.Error, busiest[i].Hash, busiest[i].Count)
				}
			}
		})
	}
}

func TestSketchKeepsItsSizeAndItsFirstValue(t *testing.T) {
	s := New[string](2)
	s.Add(1, "first", 5)
	s.Add(1, "again", 1)
	s.Add(2, "second", 3)
	s.Add(3, "third", 1) // takes over the count 3
	s.Add(4, "none", 0)
	want := []Item[string]{{1, "first", 6, 0}, {3, "third", 4, 3}}
	if top := Top(10, s.List()); !slices.Equal(top, want) {
		t.Errorf("%+v, want %+v", top, want)
	}
	if top := Top(1, s.List()); !slices.Equal(top, want[:1]) {
		t.Errorf("%+v, want %+v", top, want[:1])
	}
	if s.total != 10 || s.MaxError() != 4 {
		t.Errorf("total %d and max error %d, want 10 and 4", s.total, s.MaxError())
	}
	s.Reset()
	if top := Top(10, s.List()); len(top) != 0 || s.total != 0 || s.MaxError() != 0 {
		t.Errorf("after Reset: %+v", top)
	}
	s.Add(3, "after Reset", 2)
	if list := s.List(); !slices.Equal(list.Items, []Item[string]{{3, "after Reset", 2, 0}}) || list.Total != 2 {
		t.Errorf("after Reset: %+v", list)
	}
}

func TestCountsDoNotOverflow(t *testing.T) {
	s := New[string](1)
	s.Add(1, "a", math.MaxUint64-1)
	s.Add(1, "a", 5)
	s.Add(2, "b", 1)
	if top := Top(1, s.List()); top[0].Count != math.MaxUint64 || s.total != math.MaxUint64 {
		t.Errorf("%+v, want the largest count, not one that wrapped", top)
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	s, key := New[string](100), uint64(0)
	for range 1000 { // the map reaches its size
		s.Add(key*0x9e3779b97f4a7c15, "", 1)
		key++
	}
	if n := testing.AllocsPerRun(10_000, func() { s.Add(key*0x9e3779b97f4a7c15, "", 1); key++ }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	for name, s := range map[string]float64{"zipf=1.01": 1.01, "zipf=1.5": 1.5} {
		b.Run(name, func(b *testing.B) {
			zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), s, 1, 1_000_000)
			keys := make([]uint64, 1<<16)
			for i := range keys {
				keys[i] = zipf.Uint64() * 0x9e3779b97f4a7c15
			}
			sketch, i := New[[3]string](1000), 0
			for b.Loop() {
				sketch.Add(keys[i%len(keys)], [3]string{}, 1)
				i++
			}
		})
	}
}
