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

// A batch is the arguments of one script call. The header of batch.lua describes them and the reply.
type batch struct {
	now    time.Time
	latest time.Time // the call charges nothing if it runs later; zero: only the deadline of its context counts
	hits   []*limiters.Hit
	group  []uint16 // the number of each hit's group, from 1; 0: a group of one
	keys   []string // of the hits, in Redis

	distinct []string // keys, each once
	limits   []*limiters.Limit
	limitOf  []int // the index in limits of each hit's limit, from 1
	runs     []byte
	times    [2 * wordSize]byte

	buffer keyBuffer
	// For encode. Indices in distinct count from 1.
	known     map[string]int // key to index
	index     []int          // of each hit's key
	counts    []int          // hits on the key with this index
	arguments []any
	limitArgs []byte
}

const (
	wordSize    = 8
	verdictSize = 1 + 3*wordSize // result, used, retry, reset
	// maxHits is the maximum number of hits in a batch: indices have two bytes.
	maxHits = math.MaxUint16
)

// The results that a verdict begins with.
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

// getBatch returns a batch of groups from the pool. Call release when its verdicts have been read.
func getBatch(now time.Time, groups []limiters.Group, namer keyNamer) *batch {
	b := batches.Get().(*batch)
	b.now, b.latest, b.keys = now, time.Time{}, namer.keysIn(&b.buffer, groups)
	b.encode(groups)
	return b
}

// release returns the batch to the pool, without references to the caller's. Unusually large batches are not kept.
func (b *batch) release() {
	if len(b.hits) > 4096 {
		return
	}
	clear(b.known)
	clear(b.buffer.keys)
	clear(b.distinct)
	clear(b.limits)
	clear(b.arguments)
	clear(b.hits)
	b.hits, b.group, b.keys = b.hits[:0], b.group[:0], nil
	b.distinct, b.limits, b.limitOf, b.runs = b.distinct[:0], b.limits[:0], b.limitOf[:0], b.runs[:0]
	batches.Put(b)
}

// encode makes runs of consecutive hits. The hits of a run have the same limit, group and count, and are either on one key
// or on consecutive distinct keys. Hits that are alone on their keys may share a run with different limits and counts.
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

// count returns N of hit i for the script. A peek with Denied hits is encoded as MaxHits plus Denied.
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

// A run is consecutive hits that are sent as one, see encode. Indices count from 1, but first counts from 0.
type run struct {
	first                   int  // index of the first hit
	times, key, step, limit int  // number of hits, index of the first key, 0 or 1 key further for each hit, index of the limit
	alone                   bool // each hit is a group of one, and the only hit on its key
	mixed                   bool // alone, and each hit has its own limit and count
	group                   uint16
	n                       int64
}

// The kinds of runs, as batch.lua knows them.
const (
	kindOneKey = iota
	kindNextKeys
	kindAlone
	kindMixed
)

// longRun is the length from which equal hits stay a run of their own instead of becoming part of a mixed one. A run costs
// the script as much as a few hits; each hit of a mixed run costs a little more than one of an equal run.
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

// join adds the run next of one hit to r. It returns false if next does not belong to r.
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

// args returns the command that runs the batch. notAfter is its deadline in the server's time; 0 means none.
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
	b.limitArgs = b.limitArgs[:0]
	for _, l := range b.limits {
		first := len(b.limitArgs)
		b.limitArgs = appendLimit(b.limitArgs, l)
		args = append(args, b.limitArgs[first:])
	}
	b.arguments = append(args, b.runs)
	return b.arguments
}

// appendLimit appends the argument of the script for a limit: the algorithm's name, a zero byte, and its numbers as
// big-endian integers of 8 bytes.
func appendLimit(to []byte, l *limiters.Limit) []byte {
	to = append(append(to, l.Spec().Algorithm...), 0)
	for _, n := range l.Numbers() {
		to = binary.BigEndian.AppendUint64(to, uint64(n))
	}
	return to
}

// errLate is the error of a call that ran after its deadline. It charged nothing.
var errLate = limiters.Uncharged(errors.New("the call ran after its deadline"))

// A reply is the reply of the script.
type reply struct {
	server   int64  // the server's time, µs since 1970
	verdicts string // encoded; empty if the call ran after its deadline
	texts    []any  // reasons of failed hits
}

func readReply(value any) (reply, error) {
	values, _ := value.([]any)
	if len(values) == 0 {
		return reply{}, fmt.Errorf("the script's reply is %T: want an array", value)
	}
	text, _ := values[0].(string)
	if len(text) < wordSize {
		return reply{}, fmt.Errorf("the script's reply has %d bytes: want at least %d", len(text), wordSize)
	}
	return reply{server: word(text), verdicts: text[wordSize:], texts: values[1:]}, nil
}

// late reports whether the call ran after its deadline.
func (r reply) late() bool { return r.verdicts == "" }

// text returns reason i of the texts, counted from 1.
func (r reply) text(i int64) string {
	if i < 1 || i > int64(len(r.texts)) {
		return "the script gave no reason"
	}
	return fmt.Sprint(r.texts[i-1])
}

func word(s string) int64 { return int64(binary.BigEndian.Uint64([]byte(s))) }

// read decodes the verdicts of the batch's hits into out.
func (b *batch) read(r reply, out []limiters.Verdict) error {
	if r.late() {
		return errLate
	}
	if len(r.verdicts) != verdictSize*len(b.hits) {
		return fmt.Errorf("the script's reply has %d bytes of verdicts: want %d of %d bytes", len(r.verdicts), len(b.hits), verdictSize)
	}
	for i := range b.hits {
		text := r.verdicts[verdictSize*i:]
		used, retry, reset := word(text[1:]), word(text[1+wordSize:]), word(text[1+2*wordSize:])
		v := limiters.NewVerdict(b.hits[i].Limit, text[0] == wireAllowed, used, retry, reset)
		if text[0] == wireFailed {
			v = limiters.Verdict{Err: &KeyError{Key: b.keys[i], Reply: r.text(used)}}
		}
		out[i] = v
	}
	return nil
}
