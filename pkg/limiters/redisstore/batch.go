package redisstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A batch is hits as the script takes them; the header of batch.lua names what is sent and what comes back.
type batch struct {
	now   time.Time
	hits  []*limiters.Hit
	group []uint16 // of each hit, from 1; 0: it is a group by itself
	keys  []string // of the hits, in Redis

	distinct []string // of keys
	limits   []*limiters.Limit
	limitOf  []int // of each hit, from 1
	runs     []byte
	times    [2 * wordSize]byte

	room keyRoom
	// What encode needs: the place of each key, and for each hit and each key by its place, from 1.
	known     map[string]int
	index     []int
	counts    []int
	arguments []any
}

const (
	wordSize    = 8
	verdictSize = 1 + 3*wordSize // what, used, retry, reset
	// mostHits is how many hits a batch may have: an index of one has two bytes.
	mostHits = math.MaxUint16
)

// What a verdict begins with.
const (
	wireDenied = iota
	wireAllowed
	wireFailed
)

func newBatch(now time.Time, groups []limiters.Group, keys []string) *batch {
	b := &batch{now: now, keys: keys, known: map[string]int{}}
	b.encode(groups)
	return b
}

var batches = sync.Pool{New: func() any { return &batch{known: map[string]int{}} }}

// borrowBatch makes a batch in memory that is used again. Give it back when its verdicts are read.
func borrowBatch(now time.Time, groups []limiters.Group, names naming) *batch {
	b := batches.Get().(*batch)
	b.now, b.keys = now, names.keysIn(&b.room, groups)
	b.encode(groups)
	return b
}

// giveBack gives the memory back, without what is not ours, unless it is more than batches take as a rule.
func (b *batch) giveBack() {
	if len(b.hits) > 4096 {
		return
	}
	clear(b.known)
	clear(b.room.keys)
	clear(b.distinct)
	clear(b.limits)
	clear(b.arguments)
	clear(b.hits)
	b.hits, b.group, b.keys = b.hits[:0], b.group[:0], nil
	b.distinct, b.limits, b.limitOf, b.runs = b.distinct[:0], b.limits[:0], b.limitOf[:0], b.runs[:0]
	batches.Put(b)
}

// encode makes runs of hits that differ in nothing but their keys: these are one, or each the next that was not there yet. Hits
// that are alone on their keys may differ in their limits and in how many they are.
func (b *batch) encode(groups []limiters.Group) {
	number := uint16(0)
	for _, g := range groups {
		own := uint16(0)
		if len(g) > 1 {
			number++
			own = number
		}
		for i := range g {
			b.hits, b.group = append(b.hits, &g[i]), append(b.group, own)
		}
	}
	b.index, b.counts = b.index[:0], append(b.counts[:0], 0)
	for _, key := range b.keys {
		i, found := b.known[key]
		if !found {
			b.distinct, b.counts = append(b.distinct, key), append(b.counts, 0)
			i = len(b.distinct)
			b.known[key] = i
		}
		b.index = append(b.index, i)
		b.counts[i]++
	}
	var last run
	for i := range b.hits {
		b.limitOf = append(b.limitOf, b.limitIndex(b.hits[i].Limit))
		next := run{
			first: i,
			times: 1,
			key:   b.index[i],
			alone: b.counts[b.index[i]] == 1 && b.group[i] == 0,
			limit: b.limitOf[i],
			group: b.group[i],
			n:     b.count(i),
		}
		if !last.join(next) {
			b.appendRun(&last)
			last = next
		}
	}
	b.appendRun(&last)
}

// count is how many hits the script is told that hit i is; of a look that brings denied ones, MaxHits more than these.
func (b *batch) count(i int) int64 {
	h := b.hits[i]
	if h.N == 0 && b.group[i] == 0 && h.Denied > 0 {
		return limiters.MaxHits + min(h.Denied, limiters.MaxHits)
	}
	return max(-limiters.MaxHits, min(h.N, limiters.MaxHits))
}

func (b *batch) limitIndex(l *limiters.Limit) int {
	if i := slices.Index(b.limits, l); i >= 0 {
		return i + 1
	}
	b.limits = append(b.limits, l)
	return len(b.limits)
}

// A run is hits on one key, or on keys that follow one another. Indices in the batch's lists count from 1.
type run struct {
	first                   int // of the hits, from 0
	times, key, step, limit int
	alone                   bool // the key of each has no other hit in the batch, and it no group
	mixed                   bool // they are alone, and each has a limit and a count of its own
	group                   uint16
	n                       int64
}

// What the keys of a run are.
const (
	kindOneKey = iota
	kindNextKeys
	kindAlone
	kindMixed
)

// longRun is how many equal hits are not made part of a mixed run by one that differs: a run costs the script as much as a few
// hits, and each hit of a mixed one a little more.
const longRun = 8

func (r *run) kind() byte {
	switch {
	case r.mixed:
		return kindMixed
	case r.alone:
		return kindAlone
	case r.step == 1:
		return kindNextKeys
	default:
		return kindOneKey
	}
}

// join makes next a part of the run, if it is.
func (r *run) join(next run) bool {
	step := next.key - r.key
	if r.times > 1 {
		step = r.step
	}
	if r.times == 0 || step < 0 || step > 1 || next.key != r.key+step*r.times || next.alone != r.alone || next.group != r.group {
		return false
	}
	if r.mixed || next.limit != r.limit || next.n != r.n {
		if !r.alone || !r.mixed && r.times >= longRun {
			return false
		}
		r.mixed = true
	}
	r.step = step
	r.times++
	return true
}

func (b *batch) appendRun(r *run) {
	if r.times == 0 {
		return
	}
	to := binary.BigEndian.AppendUint16(b.runs, uint16(r.times))
	to = binary.BigEndian.AppendUint16(to, uint16(r.key))
	to = append(to, r.kind())
	to = binary.BigEndian.AppendUint16(to, uint16(r.limit))
	to = binary.BigEndian.AppendUint16(to, r.group)
	to = binary.BigEndian.AppendUint64(to, uint64(r.n))
	if r.mixed {
		for i := r.first; i < r.first+r.times; i++ {
			to = binary.BigEndian.AppendUint16(to, uint16(b.limitOf[i]))
			to = binary.BigEndian.AppendUint64(to, uint64(b.count(i)))
		}
	}
	b.runs = to
}

// args are the command that runs the batch, and not after a time of the server's.
func (b *batch) args(name, text string, notAfter int64) []any {
	args := append(b.arguments[:0], name, text, len(b.distinct))
	for i := range b.distinct {
		args = append(args, &b.distinct[i])
	}
	now := int64(0)
	if !b.now.IsZero() {
		now = b.now.UnixMicro()
	}
	binary.BigEndian.PutUint64(b.times[:], uint64(now))
	binary.BigEndian.PutUint64(b.times[wordSize:], uint64(notAfter))
	args = append(args, b.times[:])
	for _, l := range b.limits {
		args = append(args, l.Params())
	}
	b.arguments = append(args, b.runs)
	return b.arguments
}

// errLate says that a call came to run after the time that it was to run at the latest, and charged nothing.
var errLate = errors.New("the call came to run too late, and charged nothing")

// A reply is what the script answers: the server's time, the verdicts, and why some hits failed.
type reply struct {
	server   int64 // µs since 1970
	verdicts string
	texts    []any
}

func readReply(value any) (reply, error) {
	values, _ := value.([]any)
	if len(values) == 0 {
		return reply{}, fmt.Errorf("want an array, got %T", value)
	}
	text, _ := values[0].(string)
	if len(text) < wordSize {
		return reply{}, fmt.Errorf("want at least %d bytes, got %d", wordSize, len(text))
	}
	return reply{server: word(text), verdicts: text[wordSize:], texts: values[1:]}, nil
}

// late tells that the call came to run too late.
func (r reply) late() bool { return r.verdicts == "" }

// text is why a hit failed: that of the texts, counted from 1.
func (r reply) text(i int64) string {
	if i < 1 || i > int64(len(r.texts)) {
		return "for a reason that the script does not give"
	}
	return fmt.Sprint(r.texts[i-1])
}

func word(s string) int64 { return int64(binary.BigEndian.Uint64([]byte(s))) }

// read writes what the script replied to the verdicts of the batch's hits.
func (b *batch) read(r reply, out []limiters.Verdict) error {
	if r.late() {
		return errLate
	}
	if len(r.verdicts) != verdictSize*len(b.hits) {
		return fmt.Errorf("want %d verdicts of %d bytes, got %d bytes", len(b.hits), verdictSize, len(r.verdicts))
	}
	for i := range b.hits {
		text := r.verdicts[verdictSize*i:]
		used, retry, reset := word(text[1:]), word(text[1+wordSize:]), word(text[1+2*wordSize:])
		v := limiters.Told(b.hits[i].Limit, text[0] == wireAllowed, used, retry, reset)
		if text[0] == wireFailed {
			v = limiters.Verdict{Err: &KeyError{Key: b.keys[i], Reply: r.text(used)}}
		}
		out[i] = v
	}
	return nil
}

// A KeyError says why Redis could not decide the hits on one key. Its text does not show the key, which holds what users
// sent.
type KeyError struct {
	Key   string // in Redis
	Reply string // what Redis, or the script, said
}

func (e *KeyError) Error() string { return "redisstore: a key that cannot be decided: " + e.Reply }

// StoreKey is the key in Redis, for whoever may see it.
func (e *KeyError) StoreKey() string { return e.Key }
