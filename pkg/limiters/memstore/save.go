package memstore

import (
	"encoding/binary"
	"hash/crc64"
	"io"
	"math"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// The format of a snapshot. Numbers are little endian, u is an unsigned varint, and text has its
// length before it. Times are µs since 1970.
//
//	field       bytes
//	magic       8
//	version     4
//	saved at    8       by the store's clock
//	algorithms  1       how many
//	            1+text  the name of each
//
//	then for each key
//	length      4       of the fields below
//	expiry      8
//	algorithm   1       the number of the name, from 0
//	flags       1
//	maximum     u
//	window      u       in µs
//	parameters  u+text  as limiters.Params.String writes them
//	key         u+text
//	state               as limiters.AppendState writes it, with leases first if the flag flagLeases is set
//
//	then
//	0           4
//	keys        8       how many
//	CRC-64      8       ECMA, of all bytes before it
//
// A change of the format needs another version.
const (
	magic   = "weir\r\nM\x1a"
	version = 2

	flagCountDenied = 1
	flagLeases      = 2

	// maxRecordBytes bounds a key in a snapshot. The longest log has 24 MB.
	maxRecordBytes = 64 << 20
	// bytesPerLock is the approximate number of bytes copied under a shard's lock, apart from one
	// log.
	bytesPerLock = 16 << 10
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// Save writes all unexpired keys to w, for [Load], and returns their number. Takes continue
// meanwhile: Save locks one shard at a time, for a few microseconds and the copy of one log (see
// BenchmarkSave), and holds no lock while it writes. Keys may be saved as of different moments
// during Save.
func (s *Store) Save(w io.Writer) (keys int64, err error) {
	crc := crc64.New(crcTable)
	out := io.MultiWriter(w, crc)
	b := append(make([]byte, 0, 2*bytesPerLock), magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	storeNow := s.clock()
	b = binary.LittleEndian.AppendUint64(b, uint64(storeNow))
	algorithms := limiters.Algorithms()
	b = append(b, byte(len(algorithms)))
	for _, name := range algorithms {
		b = append(append(b, byte(len(name))), name...)
	}
	c := copier{algorithms: algorithms, storeNow: storeNow}
	for i := range s.shards {
		for words := range lengthCount {
			if b, err = c.copyTo(out, &s.shards[i], words, b); err != nil {
				return 0, err
			}
		}
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.keys))
	if _, err := out.Write(b); err != nil {
		return 0, err
	}
	_, err = w.Write(binary.LittleEndian.AppendUint64(nil, crc.Sum64()))
	return c.keys, err
}

// A copier copies the records of one length in a shard, a few at a time, from last to first.
// Records move only toward the first, so a record may be copied twice but is never missed.
type copier struct {
	algorithms []string
	storeNow   int64
	keys       int64

	words    int
	slab     int // the index of the slab among those of this length
	row      int // the records of the slab before this row remain
	nextSize int // bytes for the next log, which is allocated outside of the lock
}

func (c *copier) begin(words int) {
	c.words, c.slab, c.row, c.nextSize = words, math.MaxInt, math.MaxInt, 0
}

// copyTo appends the records of a length in sh to b, some at a time, and writes b to out each time.
// It returns b for reuse, empty.
func (c *copier) copyTo(out io.Writer, sh *shard, words int, b []byte) ([]byte, error) {
	c.begin(words)
	for more := true; more; b = b[:0] {
		if c.nextSize > cap(b)-len(b) {
			// Touch the memory before taking the lock.
			b = slices.Grow(b, c.nextSize)
			clear(b[len(b):cap(b)])
		}
		b, more = c.copy(sh, b)
		if len(b) == 0 {
			continue
		}
		if _, err := out.Write(b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// copy appends some records to b. It reports whether there are more.
func (c *copier) copy(sh *shard, b []byte) (_ []byte, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	class := &sh.slabs.classes[c.words]
	if c.slab >= len(class.slabs) {
		c.slab, c.row = len(class.slabs)-1, math.MaxInt
	}
	for passed := 0; c.slab >= 0; c.slab, c.row = c.slab-1, math.MaxInt {
		sl := &sh.slabs.table.items[class.slabs[c.slab]]
		for c.row = min(c.row, int(sl.rows)); c.row > 0; c.row-- {
			// Skipping a record takes time too.
			passed++
			if len(b) >= bytesPerLock || passed > bytesPerLock/64 {
				return b, true
			}
			r := sl.record(c.row - 1)
			if r.expiry() <= c.storeNow {
				continue
			}
			var state limiters.State
			sh.readState(r, &state)
			limit := sh.limits.get(r.limitIndex())
			if n := limiters.StateLen(limit, &state); n > bytesPerLock && n > cap(b)-len(b)-bytesPerLock && c.nextSize < n+2*bytesPerLock {
				c.nextSize = n + 2*bytesPerLock
				return b, true
			}
			b = c.append(b, sh, r, limit, &state)
		}
	}
	return b, false
}

func (c *copier) append(b []byte, sh *shard, r record, l *limiters.Limit, state *limiters.State) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.expiry()))
	spec := l.Spec()
	flags := byte(0)
	if spec.CountDenied {
		flags |= flagCountDenied
	}
	if state.HasLeases() {
		flags |= flagLeases
	}
	b = append(b, byte(slices.Index(c.algorithms, spec.Algorithm)), flags)
	b = binary.AppendUvarint(b, uint64(spec.Max))
	b = binary.AppendUvarint(b, uint64(spec.Window.Microseconds()))
	b = appendText(b, spec.Params.String())
	b = appendText(b, sh.key(r))
	b = limiters.AppendState(b, l, state)
	if len(b)-start-4 > maxRecordBytes {
		return b[:start]
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	c.keys++
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}
