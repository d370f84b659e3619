package memstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// The errors of a snapshot that is refused, beside those of its reader.
var (
	ErrForeign = errors.New("not a snapshot of Weir's memory")
	ErrVersion = errors.New("a snapshot of another version of Weir")
	ErrTorn    = errors.New("a torn snapshot")
)

// Loaded tells what became of the keys of a snapshot.
type Loaded struct {
	Saved time.Time // when it was saved, by the clock of the store that did
	Keys  int64     // that the store now holds
	// Ended are keys that are as good as new by now: their time has passed, or they are so far ahead of the clock that they
	// count as absent.
	Ended   int64
	LeftOut int64 // for want of room, or since this version of Weir knows no such limit
}

// Load makes a Store of a snapshot that [Store.Save] wrote. Where it fails there is no store: of a snapshot that is torn,
// foreign or of another version nothing is used.
//
// The keys are held under the limits that they were held under, so one that denies still denies, and by their times on
// the wall clock: what would have ended while nothing ran has ended. Where that clock was set meanwhile the rules of
// package limiters hold: ahead, windows end sooner; back by no more than a limit's window, its keys wait for the clock to
// catch up; back by more, they count as absent. At the bounds of o keys that deny go before those that do not.
func Load(r io.Reader, o Options) (*Store, Loaded, error) {
	s := New(o)
	told, err := s.load(r)
	if err != nil {
		return nil, Loaded{}, err
	}
	return s, told, nil
}

func (s *Store) load(r io.Reader) (Loaded, error) {
	in := &source{from: bufio.NewReaderSize(r, 64<<10)}
	l := loader{store: s, take: take{store: s, own: s.clock()}, limits: make(map[limiters.Spec]*limiters.Limit)}
	var err error
	if l.names, l.told.Saved, err = in.head(); err != nil {
		return Loaded{}, err
	}
	for count := uint64(0); ; count++ {
		n, err := in.next(4)
		if err != nil {
			return Loaded{}, err
		}
		length := binary.LittleEndian.Uint32(n)
		switch {
		case length == 0:
			if err := in.tail(count); err != nil {
				return Loaded{}, err
			}
			l.told.Keys, l.told.LeftOut = s.keys.Load(), l.told.LeftOut+s.dropped.Load()
			return l.told, nil
		case length > mostRecord:
			return Loaded{}, fmt.Errorf("%w: a key of %d bytes", ErrTorn, length)
		}
		b, err := in.next(int(length))
		if err != nil {
			return Loaded{}, err
		}
		if err := l.key(&fields{b: b}); err != nil {
			return Loaded{}, fmt.Errorf("%w: key %d: %w", ErrTorn, count+1, err)
		}
	}
}

// A source reads a snapshot and sums it up.
type source struct {
	from *bufio.Reader
	buf  []byte
	crc  uint64
}

// next is the next n bytes, until the one after it. Memory is made as bytes come, whatever n promises.
func (in *source) next(n int) ([]byte, error) {
	const step = 1 << 20
	for at := 0; at < n; {
		to := min(n, at+step)
		if to > len(in.buf) {
			in.buf = append(in.buf, make([]byte, to-len(in.buf))...)
		}
		got, err := io.ReadFull(in.from, in.buf[at:to])
		at += got
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("%w: it ends too soon", ErrTorn)
		case err != nil:
			return nil, err
		}
	}
	in.crc = crc64.Update(in.crc, crcTable, in.buf[:n])
	return in.buf[:n], nil
}

func (in *source) head() (names []string, saved time.Time, err error) {
	if b, err := in.next(len(magic)); errors.Is(err, ErrTorn) || err == nil && string(b) != magic {
		return nil, saved, ErrForeign
	} else if err != nil {
		return nil, saved, err
	}
	b, err := in.next(4)
	if err != nil {
		return nil, saved, err
	}
	if v := binary.LittleEndian.Uint32(b); v != version {
		return nil, saved, fmt.Errorf("%w: its format is %d, and this one reads %d", ErrVersion, v, version)
	}
	if b, err = in.next(9); err != nil {
		return nil, saved, err
	}
	saved = time.UnixMicro(int64(binary.LittleEndian.Uint64(b)))
	for range b[8] {
		if b, err = in.next(1); err != nil {
			return nil, saved, err
		}
		if b, err = in.next(int(b[0])); err != nil {
			return nil, saved, err
		}
		names = append(names, string(b))
	}
	return names, saved, nil
}

// tail holds what was read to what was written.
func (in *source) tail(count uint64) error {
	b, err := in.next(8)
	if err != nil {
		return err
	}
	want, is := binary.LittleEndian.Uint64(b), in.crc
	if b, err = in.next(8); err != nil {
		return err
	}
	if want != count || binary.LittleEndian.Uint64(b) != is {
		return fmt.Errorf("%w: its checksum is not that of its bytes", ErrTorn)
	}
	switch _, err := in.from.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: it goes on behind its end", ErrTorn)
	case !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// fields are what a key consists of. Once one is missing all that follow are 0.
type fields struct {
	b      []byte
	failed bool
}

func (f *fields) bytes(n uint64) []byte {
	if f.failed || n > uint64(len(f.b)) {
		f.failed = true
		return nil
	}
	b := f.b[:n]
	f.b = f.b[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) int64() int64 {
	if b := f.bytes(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

func (f *fields) uvarint() uint64 {
	v, n := binary.Uvarint(f.b)
	if f.bytes(uint64(max(n, 0))); n <= 0 {
		f.failed = true
	}
	return v
}

// A loader puts the keys of a snapshot into a store that nobody else has yet.
type loader struct {
	store  *Store
	take   take // of no hits: it makes room
	names  []string
	limits map[limiters.Spec]*limiters.Limit // nil: no such limit
	told   Loaded
}

// mostLimits is how many limits a loader remembers. Limits may be as many as keys.
const mostLimits = 4096

func (l *loader) limit(spec limiters.Spec) *limiters.Limit {
	limit, found := l.limits[spec]
	if !found {
		limit, _ = limiters.New(spec)
		if len(l.limits) >= mostLimits {
			clear(l.limits)
		}
		l.limits[spec] = limit
	}
	return limit
}

func (l *loader) key(f *fields) error {
	due, name, flags := f.int64(), int(f.byte()), f.byte()
	most, window, capacity := f.uvarint(), f.uvarint(), f.uvarint()
	key := string(f.bytes(f.uvarint()))
	if f.failed {
		return errors.New("a field is missing")
	}
	if name >= len(l.names) || max(most, capacity) > limiters.MaxPerWindow || window > uint64(limiters.MaxWindow.Microseconds()) {
		return errors.New("a limit out of range")
	}
	algorithm, hasText := strings.CutSuffix(l.names[name], extended)
	var others limiters.Params
	if hasText {
		if others = limiters.Params(f.bytes(f.uvarint())); f.failed {
			return errors.New("a field is missing")
		}
	}
	limit := l.limit(limiters.Spec{
		Algorithm: algorithm, Max: int64(most), Window: time.Duration(window) * time.Microsecond,
		Params:      paramsOf(capacity, flags&flagFirstHit != 0, others),
		CountDenied: flags&flagCountDenied != 0,
	})
	if limit == nil {
		l.told.LeftOut++
		return nil
	}
	state, err := limiters.ReadState(limit, f.b)
	if err != nil {
		return err
	}
	l.put(key, limit, &state, due)
	return nil
}

func (l *loader) put(key string, limit *limiters.Limit, state *limiters.State, due int64) {
	s, own := l.store, l.take.own
	verdict, denies := limiters.Denial(limit, state, own, 1)
	ahead := verdict.Used == 0 && limiters.Until(limit, state) > own+limit.Window().Microseconds()
	if due <= own || ahead || limiters.Fresh(state) {
		l.told.Ended++
		return
	}
	hash := s.hash(&limiters.Hit{Key: key, Limit: limit})
	sh := &s.shards[hash%shardCount]
	if p := sh.find(uint32(hash>>32), key, limit); p != 0 {
		// It moved while it was saved: this is the later of the two.
		s.remove(sh, p)
	}
	size := int64(limiters.Size(state))
	// A log that denies may go over the bound, as one may that grows; then something has to go before the next.
	if fits := s.hasRoom(true) && size <= s.max.MaxBytes-s.bytes.Load(); !fits && (!denies || !l.take.room(sh, true)) {
		l.told.LeftOut++
		return
	}
	p, ok := s.insert(sh, uint32(hash>>32), key, limit)
	if !ok {
		l.told.LeftOut++
		return
	}
	r := sh.record(p)
	sh.save(r, state)
	sh.limits.table.items[r.limit()].hitAt = own
	s.bytes.Add(size)
	sh.due(p, due)
}
