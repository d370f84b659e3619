package redisstore

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A batch holds the arguments of one script call; wire.go of redisscripts documents them and the
// reply.
type batch struct {
	notAfter time.Time // the batch charges nothing after this time of the local clock; zero: no deadline
	now      time.Time // the time of Options.Now; zero: the server's time

	ops      []batchOp
	keys     []string // the keys of the operations, each once, and then extra keys
	limits   []*limiters.Limit
	runs     []byte             // the encoded runs, see run.go
	timeArgs [2 * wordSize]byte // now and notAfter

	indexOfKey map[string]int // the index of each key in keys
	opsOnKey   []int          // the number of operations on the key with this index

	argsBuffer   []any  // reused by commandArgs
	limitsBuffer []byte // reused by commandArgs
}

// A batchOp is an operation of a batch.
type batchOp struct {
	*limiters.Op
	groupSize  int // the number of operations of its group
	keyIndex   int // in batch.keys
	limitIndex int // in batch.limits
}

const wordSize = 8 // bytes of a number

// maxKeys is the largest number of keys in a batch, because an index has two bytes.
const maxKeys = math.MaxUint16

// maxBatchOps is the largest number of operations in a batch, each with a key of every kind.
const maxBatchOps = maxKeys / len(keySuffixes)

// batchPool saves a tenth of the time of 256 operations in BenchmarkCall.
var batchPool = sync.Pool{New: func() any { return &batch{indexOfKey: map[string]int{}} }}

// newBatch returns a batch without operations from the pool. Call release after reading its
// verdicts.
func newBatch(now, notAfter time.Time) *batch {
	b := batchPool.Get().(*batch)
	b.now, b.notAfter = now, notAfter
	return b
}

// maxPooledBatch is the number of operations up to which a batch is reused.
const maxPooledBatch = 4096

// release clears the batch and returns it to the pool, unless it is unusually large.
func (b *batch) release() {
	if len(b.ops) > maxPooledBatch {
		return
	}
	clear(b.indexOfKey)
	clear(b.keys)
	clear(b.limits)
	clear(b.argsBuffer)
	clear(b.ops)
	b.ops, b.keys, b.limits, b.runs, b.opsOnKey = b.ops[:0], b.keys[:0], b.limits[:0], b.runs[:0], b.opsOnKey[:0]
	batchPool.Put(b)
}

// encode adds the operations of groups to a batch without operations, which refers to them until
// its release. keys contains the key of each operation.
func (b *batch) encode(groups []limiters.Group, keys []string) {
	for first, g := range limiters.EachGroup(groups) {
		for i := range g {
			key := b.addKey(keys[first+i])
			b.opsOnKey[key]++
			b.ops = append(b.ops, batchOp{Op: &g[i], groupSize: len(g), keyIndex: key, limitIndex: b.addLimit(g[i].Limit)})
		}
	}
	for first := 0; first < len(b.ops); {
		r := b.runFrom(first)
		b.appendRun(first, &r)
		first += r.OpCount
	}
}

// addKey adds a key that is not in the batch yet, and returns its index.
func (b *batch) addKey(key string) int {
	i, found := b.indexOfKey[key]
	if !found {
		i = len(b.keys)
		b.keys, b.opsOnKey = append(b.keys, key), append(b.opsOnKey, 0)
		b.indexOfKey[key] = i
	}
	return i
}

// verdictCount returns the number of verdicts of op. An inspection under a limit with a penalty has
// a second one, of the penalty.
func (op *batchOp) verdictCount() int {
	if op.Kind == limiters.OpInspect && op.Limit.HasPenalty() {
		return 2
	}
	return 1
}

// addLimit adds a limit that is not in the batch yet, and returns its index.
func (b *batch) addLimit(l *limiters.Limit) int {
	i := slices.Index(b.limits, l)
	if i < 0 {
		i = len(b.limits)
		b.limits = append(b.limits, l)
	}
	return i
}

// commandArgs returns the command for the batch, see [scriptCaller.eval]. notAfter is its deadline
// in the server's time; 0 means none.
func (b *batch) commandArgs(evalOrEvalsha, sourceOrDigest string, notAfter int64) []any {
	args := append(b.argsBuffer[:0], evalOrEvalsha, sourceOrDigest, len(b.keys))
	for i := range b.keys {
		args = append(args, &b.keys[i]) // a string in an any would be an allocation; go-redis sends both alike
	}
	now, calendarsAt := int64(0), b.now
	if b.now.IsZero() {
		calendarsAt = time.Now()
	} else {
		now = b.now.UnixMicro()
	}
	binary.BigEndian.PutUint64(b.timeArgs[:], uint64(now))
	binary.BigEndian.PutUint64(b.timeArgs[wordSize:], uint64(notAfter))
	args = append(args, b.timeArgs[:])
	b.limitsBuffer = b.limitsBuffer[:0]
	for _, l := range b.limits {
		first := len(b.limitsBuffer)
		b.limitsBuffer = redisscripts.AppendLimit(b.limitsBuffer, l, calendarsAt)
		// A later append may move the buffer. The argument then keeps the old array, which nothing
		// writes again.
		args = append(args, b.limitsBuffer[first:])
	}
	b.argsBuffer = append(args, b.runs)
	return b.argsBuffer
}
