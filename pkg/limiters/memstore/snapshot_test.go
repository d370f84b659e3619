package memstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func mustSave(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// storeAt returns a store whose clock shows *now.
func storeAt(now *time.Time) *Store {
	return New(Options{Now: func() time.Time { return *now }})
}

func reload(t *testing.T, from *Store, o Options) (*Store, Loaded) {
	t.Helper()
	o.Now = from.options.Now
	to := New(o)
	to.seed, to.start = from.seed, from.start
	result, err := to.load(bytes.NewReader(mustSave(t, from)))
	must.Succeed(t, err)
	return to, result
}

// Runs half of a random sequence before a restart and half after it. No verdict differs from those
// of the reference, which does not restart, and the accounts are those of the saved store.
func TestSnapshotRestoresEveryVerdict(t *testing.T) {
	for seed := range limiterstest.Seeds(150) {
		for _, name := range limiters.Algorithms() {
			restoresEveryVerdict(t, limiterstest.NewGenerator(name, seed))
			if limiters.HasWindow(name) {
				restoresEveryVerdict(t, limiterstest.NewPenaltyGenerator(name, seed).WithoutReload())
			}
			restoresEveryVerdict(t, limiterstest.NewLeaseGenerator(name, seed).WithoutReload())
		}
	}
	for seed := range limiterstest.Seeds(600) {
		restoresEveryVerdict(t, limiterstest.NewMixedGenerator(seed))
	}
}

func restoresEveryVerdict(t *testing.T, g *limiterstest.Generator) {
	t.Helper()
	calls, reference := &forwardCalls{Generator: g}, limiterstest.NewReference()
	saved := storeAt(&calls.now)
	limiterstest.Agree(t, calls, 30, ownClock{saved}, reference)
	restored, _ := reload(t, saved, Options{})
	again, result := reload(t, restored, Options{})
	if a, b := restored.Stats(), again.Stats(); a != b || result.Keys != a.Keys || result.NotLoaded+result.Expired != 0 {
		t.Fatalf("%s: loaded %+v of %+v, saved again it is %+v", g.Name, result, a, b)
	}
	limiterstest.Agree(t, calls, 30, ownClock{restored}, reference)
}

func TestSnapshotKeepsTheParametersOfALimit(t *testing.T) {
	for _, c := range []struct{ algorithm, params string }{
		{"fixed_window", ""},
		{"funnel", "capacity=7"},
		{"fixed_window", "window_start=first_hit"},
		{"fixed_window", "window_start=calendar"},
		{"funnel", "capacity=7 penalty.after=1 penalty.within=1s penalty.for=1m0s"},
	} {
		params, err := limiters.ParseParams(c.params)
		must.Succeed(t, err)
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: c.algorithm, Max: 5, Window: 24 * time.Hour, Params: params})
		s := New(Options{})
		mustTake(t, s, limiters.Op{Key: "a key", Limit: limit, Hits: 1})
		loaded, _ := reload(t, s, Options{})
		if got, want := keysBySpec(loaded), map[limiters.Spec]int{limit.Spec(): 1}; !maps.Equal(got, want) {
			t.Errorf("%s, %q: loaded %v, want %v", c.algorithm, c.params, got, want)
		}
	}
}

// filledKeys is the number of keys of a filledStore.
var filledKeys = int64(3 * len(limiterstest.WindowedAlgorithms()))

// filledStore returns a store with a few keys under each algorithm, with short and long texts.
func filledStore(t testing.TB) *Store {
	t.Helper()
	s := New(Options{})
	for i, name := range limiterstest.WindowedAlgorithms() {
		for _, key := range []string{"", "short", strings.Repeat("long ", 60)} {
			limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 3, Window: time.Hour, CountDenied: i == 1})
			ops, out := []limiters.Op{{Key: key, Limit: limit, Hits: 2}, {Key: key, Limit: limit, Hits: 2}}, make([]limiters.Verdict, 2)
			if err := s.Take(context.Background(), limiters.Singles(ops...), out); err != nil || !out[0].Allowed || out[1].Allowed {
				t.Fatal(err, out)
			}
		}
	}
	return s
}

func mustReject(t *testing.T, b []byte, want error, what string) {
	t.Helper()
	if s, result, err := Load(bytes.NewReader(b), Options{}); !errors.Is(err, want) || s != nil || result != (Loaded{}) {
		t.Fatalf("%s: %v, %+v, %v; want %v and no store", what, s != nil, result, err, want)
	}
}

func TestDamagedSnapshotIsRejected(t *testing.T) {
	b := mustSave(t, filledStore(t))
	if s, result, err := Load(bytes.NewReader(b), Options{}); err != nil || result.Keys != filledKeys || s.Stats().Keys != filledKeys {
		t.Fatalf("the whole one: %+v, %v", result, err)
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	for n := 0; n < len(b); n += step {
		want := ErrDamaged
		if n < len(magic) {
			want = ErrForeign
		}
		mustReject(t, b[:n], want, fmt.Sprint("the first ", n, " bytes"))
	}
	for i := 0; i < len(b); i += step {
		want := ErrDamaged
		switch {
		case i < len(magic):
			want = ErrForeign
		case i < len(magic)+4:
			want = ErrVersion
		}
		flipped := bytes.Clone(b)
		flipped[i] ^= 1 << (i % 8)
		mustReject(t, flipped, want, fmt.Sprintf("bit %d of byte %d flipped", i%8, i))
	}
	mustReject(t, append(bytes.Clone(b), 0), ErrDamaged, "a byte more")
	mustReject(t, append(bytes.Clone(b), b...), ErrDamaged, "two in one")
}

func TestSnapshotOfAnotherFormatIsRejected(t *testing.T) {
	mustReject(t, []byte("#!/bin/sh\necho this is something else\n"), ErrForeign, "a script")
	mustReject(t, nil, ErrForeign, "an empty file")
	b := mustSave(t, filledStore(t))
	for _, v := range []uint32{version - 1, version + 1} {
		binary.LittleEndian.PutUint32(b[len(magic):], v)
		mustReject(t, signed(b), ErrVersion, fmt.Sprint("version ", v))
	}
	broken := errors.New("broken disk")
	if _, _, err := Load(io.MultiReader(bytes.NewReader(b[:4]), iotest.ErrReader(broken)), Options{}); !errors.Is(err, broken) {
		t.Errorf("%v, want what the reader says", err)
	}
}

// signed returns a changed snapshot with the right checksum.
func signed(b []byte) []byte {
	if len(b) < 8 {
		return b
	}
	b = bytes.Clone(b)
	binary.LittleEndian.PutUint64(b[len(b)-8:], crc64.Checksum(b[:len(b)-8], crcTable))
	return b
}

func TestSnapshotWithAHugeLengthTakesNoMemory(t *testing.T) {
	b := mustSave(t, New(Options{}))
	b = binary.LittleEndian.AppendUint32(b[:len(b)-20], maxRecordBytes)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mustReject(t, b, ErrDamaged, "64 MiB that do not come")
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; made > 8<<20 {
		t.Errorf("%d bytes were made for them", made)
	}
	b = binary.LittleEndian.AppendUint32(b[:len(b)-4], maxRecordBytes+1)
	mustReject(t, b, ErrDamaged, "more than a key may take")
}

func TestSnapshotLeavesOutUnknownLimits(t *testing.T) {
	b := bytes.Replace(mustSave(t, filledStore(t)), []byte("sliding_log"), []byte("sliding_hog"), 1)
	s, result, err := Load(bytes.NewReader(signed(b)), Options{})
	if err != nil || result.NotLoaded != 3 || result.Keys != filledKeys-3 || s.Stats().Keys != result.Keys {
		t.Errorf("%+v, %v; want all keys but 3 of %d", result, err, filledKeys)
	}
}

// The costs of ended ids are kept until the charges that open them arrive. Their sum may be too
// large for an int64.
func TestSnapshotRestoresHugeSettlements(t *testing.T) {
	budget := limiterstest.MustLimit(limiters.Spec{
		Algorithm: "fixed_window", Max: 1000, Window: time.Hour, Params: limiters.Params{Reserve: limiters.ReserveSpec{TTL: time.Minute}},
	})
	s := New(Options{})
	ends := make([]limiters.Op, 2100)
	for i := range ends {
		ends[i] = limiters.Op{Key: "k", Limit: budget, Hits: limiters.MaxHits, Lease: limiters.NewLeaseID(nil, fmt.Sprint(i)), Kind: limiters.OpEnd}
	}
	must.Succeed(t, s.Take(t.Context(), limiters.Singles(ends...), make([]limiters.Verdict, len(ends))))
	var b bytes.Buffer
	if _, err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	if _, loaded, err := Load(&b, Options{}); err != nil || loaded.Keys != 1 {
		t.Errorf("%+v, %v: want one key", loaded, err)
	}
}

// The smallest limit of a key survives a restart: a key over it is not evicted, even after a peek
// under a larger limit.
func TestSnapshotKeepsTheSmallestLimitOfAKey(t *testing.T) {
	tight, wide := hourly, hourly
	tight.Max, wide.Max = 1, 1000
	s := New(Options{})
	hit(t, s, "denied", 1, tight)
	hit(t, s, "denied", 1, wide)
	s, result := reload(t, s, Options{MaxKeys: 20})
	if result.Keys != 1 {
		t.Fatalf("%+v", result)
	}
	hit(t, s, "denied", 0, wide)
	for i := range 500 {
		hit(t, s, fmt.Sprint(i), 1, wide)
	}
	if v := hit(t, s, "denied", 1, tight); v.Allowed {
		t.Error("the key was removed")
	}
}

func TestSnapshotLeavesOutKeysBeyondTheBound(t *testing.T) {
	tight := hourly
	tight.Max = 1
	full := New(Options{})
	for i := range 600 {
		if i%6 == 0 {
			hit(t, full, fmt.Sprint(i), 1, tight)
		} else {
			hit(t, full, fmt.Sprint(i), 1, hourly)
		}
	}
	for _, o := range []Options{{MaxKeys: 200}, {MaxBytes: full.Stats().Bytes * 2 / 3}} {
		s, result := reload(t, full, o)
		held := s.Stats()
		if held.Keys != result.Keys || result.Keys+result.NotLoaded != 600 || result.Keys < 100 || result.Keys > 400 || held.Bytes > full.Stats().Bytes*3/4 {
			t.Fatalf("%+v: loaded %+v, held %+v", o, result, held)
		}
		// A few keys may find only samples of keys over their limit.
		denied := 0
		for i := 0; i < 600; i += 6 {
			if !hit(t, s, fmt.Sprint(i), 0, tight).Allowed {
				denied++
			}
		}
		if denied < 80 {
			t.Errorf("%+v: of 100 keys that denied %d do", o, denied)
		}
	}
}

// A log that is larger than the memory left is left out, unless its key is over its limit.
func TestSnapshotLeavesOutALogBeyondTheBound(t *testing.T) {
	now := time.Now()
	from, spec := storeAt(&now), limiters.Spec{Algorithm: "sliding_log", Max: 1001, Window: time.Hour}
	for range 1000 {
		now = now.Add(time.Microsecond)
		hit(t, from, "k", 1, spec)
	}
	o := Options{MaxBytes: from.Stats().Bytes / 2}
	if s, result := reload(t, from, o); result.NotLoaded != 1 || s.Stats().Keys != 0 {
		t.Errorf("below its limit: %+v, %+v, want the key not loaded", result, s.Stats())
	}
	hit(t, from, "k", 1, spec)
	if s, result := reload(t, from, o); result.NotLoaded != 0 || s.Stats().Keys != 1 {
		t.Errorf("at its limit: %+v, %+v, want the key loaded", result, s.Stats())
	}
}

func TestSnapshotExpiresByTheWallClock(t *testing.T) {
	for _, c := range []struct {
		what        string
		set         time.Duration
		keys, ended int64
		allowed     bool
	}{
		{"down for less than the window", time.Hour - 1, 1, 0, false},
		{"down for the window", time.Hour, 0, 1, true},
		{"set back by less than the window", -time.Hour + time.Second, 1, 0, false},
		{"set back by more", -time.Hour - time.Second, 0, 1, true},
		{"set back by years", -9 * 365 * 24 * time.Hour, 0, 1, true},
	} {
		for _, name := range limiterstest.WindowedAlgorithms() {
			spec := limiters.Spec{Algorithm: name, Max: 1, Window: time.Hour, Params: limiterstest.FirstHitParams(name)}
			now := time.Unix(1_760_000_000, 0)
			s := storeAt(&now)
			hit(t, s, "k", 1, spec)
			b := mustSave(t, s)
			now = now.Add(c.set)
			s = storeAt(&now)
			if result, err := s.load(bytes.NewReader(b)); err != nil || result.Keys != c.keys || result.Expired != c.ended {
				t.Errorf("%s, %s: %+v, %v", c.what, name, result, err)
			}
			if v := hit(t, s, "k", 1, spec); v.Allowed != c.allowed {
				t.Errorf("%s, %s: %+v, want allowed: %v", c.what, name, v, c.allowed)
			}
		}
	}
}

// During a save, Takes add, move and remove records. Every key that stays is in the snapshot.
func TestSaveDuringTakesMissesNoKey(t *testing.T) {
	s := New(Options{})
	stay := limiters.Spec{Algorithm: "sliding_log", Max: 1_000_000, Window: time.Hour}
	other := limiters.Spec{Algorithm: "sliding_log", Max: 1_000_000, Window: 30 * time.Minute}
	for i := range 3000 {
		hit(t, s, fmt.Sprintf("stay %5d", i), 2, stay)
		hit(t, s, fmt.Sprintf("goes %5d", i), 1, other)
	}
	var takers sync.WaitGroup
	stop := make(chan struct{})
	const threads = 3
	for n := range threads {
		takers.Go(func() {
			for i := n; ; i += threads {
				select {
				case <-stop:
					return
				default:
				}
				i %= 3000
				hit(t, s, fmt.Sprintf("goes %5d", i), []int64{-1, 1}[i/threads%2], other)
				hit(t, s, fmt.Sprintf("stay %5d", i), 1, stay)
			}
		})
	}
	for range 4 {
		b := mustSave(t, s)
		loaded, result, err := Load(bytes.NewReader(b), Options{})
		if err != nil || result.Keys < 3000 || result.NotLoaded+result.Expired != 0 {
			t.Fatalf("%+v, %v", result, err)
		}
		for i := range 3000 {
			if v := hit(t, loaded, fmt.Sprintf("stay %5d", i), 0, stay); v.Used < 2 {
				t.Fatalf("key %d is missing: %+v", i, v)
			}
		}
	}
	close(stop)
	takers.Wait()
	if got, want := mustLoad(t, mustSave(t, s)).Stats(), s.Stats().Keys; got.Keys != want {
		t.Errorf("%d keys of %d", got.Keys, want)
	}
}

func mustLoad(t *testing.T, b []byte) *Store {
	t.Helper()
	s, _, err := Load(bytes.NewReader(b), Options{})
	must.Succeed(t, err)
	return s
}

// Any file, even with a valid checksum, is rejected, or loads states that can be decided on and
// saved.
func FuzzLoad(f *testing.F) {
	b := mustSave(f, filledStore(f))
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte(magic))
	f.Add(mustSave(f, New(Options{})))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, signed(b)} {
			s, result, err := Load(bytes.NewReader(b), Options{MaxKeys: 100})
			if err != nil {
				continue
			}
			if got := s.Stats(); got.Keys != result.Keys || got.Bytes < 0 {
				t.Fatalf("%+v, %+v", result, got)
			}
			for i, name := range limiterstest.WindowedAlgorithms() {
				for _, key := range []string{"", "short", strings.Repeat("long ", 60)} {
					limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 3, Window: time.Hour, CountDenied: i == 1})
					ops, out := make([]limiters.Op, 4), make([]limiters.Verdict, 4)
					for j, n := range []int64{0, 1, 4, -1} {
						ops[j] = limiters.Op{Key: key, Limit: limit, Hits: n}
					}
					must.Succeed(t, s.Take(context.Background(), limiters.Singles(ops...), out))
				}
			}
			if _, err := s.Save(io.Discard); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Between two copies, records of one length in one shard are added, moved and removed. Those that
// stay are saved, as of some moment of the save. If one is saved twice, the later copy is loaded.
func TestSaveMissesNoRecordThatMoves(t *testing.T) {
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1000, Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}})
	for seed := range limiterstest.Seeds(20) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		s := New(Options{})
		sh := &s.shards[0]
		hash := func(key string) uint32 {
			_, hash := s.locate(key, limit.Window())
			return hash
		}
		set := func(key string, count int64) {
			p := sh.find(hash(key), key, limit.StateID())
			if p == 0 {
				p = s.insertRecord(sh, hash(key), key, limit, false)
			}
			sh.writeState(sh.record(p), stateOf(s.clock(), count))
			sh.setExpiry(p, s.clock()+limit.Window().Microseconds())
		}
		var goes []string
		for i := range 2000 {
			if rnd.IntN(2) == 0 {
				set(fmt.Sprintf("stay %5d", i), 1)
			} else {
				goes = append(goes, fmt.Sprintf("goes %5d", i))
				set(goes[len(goes)-1], 1)
			}
		}
		names := limiters.Algorithms()
		b := mustSave(t, New(Options{}))
		b = b[:len(b)-4-8-8]
		c := copier{algorithms: names, storeNow: s.clock()}
		c.begin(recordLen("stay 00000", limit, false))
		copied, holds, count := map[string]bool{}, 0, int64(1)
		for more := true; more; holds++ {
			var part []byte
			part, more = c.copy(sh, nil)
			b = append(b, part...)
			count++
			for range 40 {
				if len(goes) > 0 {
					i := rnd.IntN(len(goes))
					key := goes[i]
					goes[i], goes = goes[len(goes)-1], goes[:len(goes)-1]
					s.removeRecord(sh, sh.find(hash(key), key, limit.StateID()))
				}
			}
			for i := range 2000 {
				if key := fmt.Sprintf("stay %5d", i); rnd.IntN(4) == 0 && sh.find(hash(key), key, limit.StateID()) != 0 {
					set(key, count)
				}
			}
			set(fmt.Sprintf("come %5d", holds), 1)
		}
		if holds < 5 {
			t.Fatalf("copied in %d holds", holds)
		}
		b = binary.LittleEndian.AppendUint32(b, 0)
		b = binary.LittleEndian.AppendUint64(b, uint64(c.keys))
		loaded, result, err := Load(bytes.NewReader(signed(append(b, make([]byte, 8)...))), Options{})
		must.Succeed(t, err)
		last := map[string]int64{}
		for key, count := range countsByKey(t, bytes.NewReader(b)) {
			copied[key], last[key] = true, count
		}
		if result.Keys != int64(len(last)) {
			t.Fatalf("seed %d: %d keys loaded of %d, want %d", seed, result.Keys, len(last), int64(len(last)))
		}
		for key := range countsByKey(t, bytes.NewReader(mustSave(t, s))) {
			if strings.HasPrefix(key, "stay") && !copied[key] {
				t.Fatalf("seed %d: %q is missing", seed, key)
			}
		}
		for key, count := range countsByKey(t, bytes.NewReader(mustSave(t, loaded))) {
			if count != last[key] {
				t.Fatalf("seed %d: %q counts %d, want the later, %d", seed, key, count, last[key])
			}
		}
	}
}

// countsByKey returns the counts of a snapshot's keys under a fixed window, the later one of a key
// that is there twice.
func countsByKey(t *testing.T, r io.Reader) map[string]int64 {
	t.Helper()
	in, all := &snapshotReader{from: bufio.NewReader(r)}, map[string]int64{}
	in.head()
	for b := in.nextKey(); b != nil; b = in.nextKey() {
		f := &keyReader{rest: b[10:]}
		f.uvarint() // the maximum
		f.uvarint() // the window
		f.text()    // the parameters
		key := f.text()
		f.int64() // the start of the window
		all[key] = f.int64()
	}
	must.Succeed(t, in.err)
	return all
}

// keysBySpec returns the limits of a store's keys, and the number of keys of each.
func keysBySpec(s *Store) map[limiters.Spec]int {
	all := map[limiters.Spec]int{}
	for i := range s.shards {
		for _, used := range s.shards[i].limits.table.items {
			if used.limit != nil {
				all[used.limit.Spec()] += used.records
			}
		}
	}
	return all
}

func TestSnapshotRestoresLimitsAndAccounts(t *testing.T) {
	s := New(Options{})
	for _, spec := range []limiters.Spec{
		{Algorithm: "fixed_window", Max: 1, Window: time.Hour, Params: limiters.Params{WindowStart: limiters.StartByFirstHit}},
		{Algorithm: "fixed_window", Max: limiters.LargestMax, Window: time.Hour, CountDenied: true},
		{Algorithm: "funnel", Max: 70_000, Window: limiters.MaxWindow, Params: limiters.Params{Capacity: 3}},
		{Algorithm: "funnel", Max: 70_000, Window: limiters.MaxWindow / 2, Params: limiters.Params{Capacity: 3, Peek: limiters.PeekOver}},
		{Algorithm: "fixed_window", Max: 7, Window: 90 * 24 * time.Hour, Params: limiters.Params{WindowStart: limiters.StartByCalendar, CalendarUnit: "month", TimeZone: "Europe/Berlin"}},
		{Algorithm: "fixed_window", Max: 9, Window: time.Minute, Params: limiters.Params{WindowStart: limiters.StartByFirstHit, Peek: limiters.PeekWouldFit}, CountDenied: true},
		{Algorithm: "sliding_log", Max: limiters.MaxLogLimit, Window: time.Hour, CountDenied: true},
	} {
		hit(t, s, "k", 1, spec)
	}
	loaded, _ := reload(t, s, Options{})
	if got, want := keysBySpec(loaded), keysBySpec(s); !maps.Equal(got, want) {
		t.Errorf("loaded %v\nof %v", got, want)
	}
	if got, want := loaded.Stats(), s.Stats(); got != want {
		t.Errorf("loaded %+v of %+v", got, want)
	}
}
