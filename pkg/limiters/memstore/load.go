package memstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Errors of an invalid snapshot.
var (
	ErrForeign = errors.New("the file is not a snapshot of Weir's memory")
	ErrVersion = errors.New("the snapshot is from another version of Weir")
	ErrDamaged = errors.New("the snapshot is damaged")
)

// Loaded is the result of loading a snapshot.
type Loaded struct {
	SavedAt time.Time // when the snapshot was saved, by the clock of the store that saved it
	Keys    int64     // keys that the store now holds
	// Expired counts keys that have expired, or that are too far ahead of the clock to count.
	Expired   int64
	NotLoaded int64 // keys that did not fit, or under a limit that this version of Weir does not know
}

// Load returns a Store with the keys of a snapshot that [Store.Save] wrote. It rejects a damaged or
// foreign snapshot as a whole.
//
// Keys keep their limits and expire by the wall clock. If the clock was set ahead meanwhile,
// windows end sooner. If it was set back by at most a limit's window, its keys wait until the clock
// catches up; beyond that they count as absent. If not all keys fit the bounds of o, keys over
// their limits take precedence.
func Load(r io.Reader, o Options) (*Store, Loaded, error) {
	s := New(o)
	loaded, err := s.load(r)
	if err != nil {
		return nil, Loaded{}, err
	}
	return s, loaded, nil
}

func (s *Store) load(r io.Reader) (Loaded, error) {
	snapshot := &snapshotReader{from: bufio.NewReaderSize(r, 64<<10)}
	l := loader{store: s, storeNow: s.clock(), limits: make(map[limitFields]*limiters.Limit)}
	l.algorithms, l.loaded.SavedAt = snapshot.head()
	count := uint64(0)
	for b := snapshot.nextKey(); b != nil; b = snapshot.nextKey() {
		count++
		if err := l.loadKey(&keyReader{rest: b}); err != nil {
			return Loaded{}, fmt.Errorf("%w: key %d: %w", ErrDamaged, count, err)
		}
	}
	snapshot.checkTail(count)
	if snapshot.err != nil {
		return Loaded{}, snapshot.err
	}
	l.loaded.Keys, l.loaded.NotLoaded = s.keys.Load(), l.loaded.NotLoaded+s.evicted.Load()
	return l.loaded, nil
}

// A loader adds keys to a store that is not in use yet.
type loader struct {
	store      *Store
	storeNow   int64
	algorithms []string
	limits     map[limitFields]*limiters.Limit // the limits by their fields; nil: this version has no such limit
	loaded     Loaded
	state      limiters.State // the state of the key that is read; a field, because a local variable would be allocated
}

// maxLoaderLimits bounds the cached limits, because there may be as many limits as keys.
const maxLoaderLimits = 4096

// limitFields are the encoded fields of a limit.
type limitFields struct {
	algorithm       string
	countDenied     bool
	maximum, window uint64
	params          string
}

func (f limitFields) limit() (*limiters.Limit, error) {
	params, err := limiters.ParseParams(f.params)
	if err != nil {
		return nil, err
	}
	return limiters.NewLimit(limiters.Spec{
		Algorithm: f.algorithm, Max: int64(f.maximum), Window: time.Duration(f.window) * time.Microsecond,
		Params: params, CountDenied: f.countDenied,
	})
}

func (l *loader) limit(f limitFields) *limiters.Limit {
	limit, found := l.limits[f]
	if !found {
		limit, _ = f.limit()
		if len(l.limits) >= maxLoaderLimits {
			clear(l.limits)
		}
		l.limits[f] = limit
	}
	return limit
}

// loadKey reads the fields of a key and adds the key to the store.
func (l *loader) loadKey(r *keyReader) error {
	expiry, number, flags := r.int64(), int(r.byte()), r.byte()
	maximum, window := r.uvarint(), r.uvarint()
	params, key := r.text(), r.text()
	if r.failed {
		return errors.New("a field is missing")
	}
	if number >= len(l.algorithms) || maximum > limiters.LargestMax || window > uint64(limiters.MaxWindow.Microseconds()) {
		return errors.New("a limit out of range")
	}
	limit := l.limit(limitFields{l.algorithms[number], flags&flagCountDenied != 0, maximum, window, params})
	if limit == nil {
		l.loaded.NotLoaded++
		return nil
	}
	var err error
	if l.state, err = limiters.ReadState(limit, r.rest, flags&flagLeases != 0); err != nil {
		return err
	}
	l.insert(key, limit, &l.state, expiry)
	return nil
}

func (l *loader) insert(key string, limit *limiters.Limit, state *limiters.State, expiry int64) {
	s, storeNow := l.store, l.storeNow
	verdict := limit.Check(state, storeNow, 1)
	// A state that is more than a window ahead of the clock counts as absent.
	ahead := state.Extra == nil && verdict.Used == 0 && limit.ResetTime(state) > storeNow+limit.Window().Microseconds()
	if expiry <= storeNow || ahead || state.IsZero() {
		l.loaded.Expired++
		return
	}
	n, hash := s.locate(key, limit.Window())
	sh := &s.shards[n]
	if p := sh.find(hash, key, limit.StateID()); p != 0 {
		// A record that moved during Save occurs twice. This is the later copy.
		s.removeRecord(sh, p)
	}
	size := int64(state.HeapBytes())
	// As in a Take, a log over its limit may exceed the memory bound; then the next key evicts
	// something.
	fits := s.hasMemory(true) && size <= s.options.MaxBytes-s.bytes.Load()
	if !fits && (!limit.Denies(state, storeNow) || !s.freeMemory(sh, true, storeNow, nil)) {
		l.loaded.NotLoaded++
		return
	}
	p := s.insertRecord(sh, hash, key, limit, needsHeapState(limit) || state.Extra != nil)
	if p == 0 {
		l.loaded.NotLoaded++
		return
	}
	r := sh.record(p)
	sh.writeState(r, state)
	sh.limits.table.items[r.limitIndex()].usedAt = storeNow
	s.bytes.Add(size)
	sh.setExpiry(p, expiry)
}
