package redisstore

import (
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// An opRun is consecutive operations that the script decides in one way.
type opRun struct {
	kind         redisscripts.RunKind
	first        int // index of the first operation
	count        int // number of operations; of an inspection, the number of its verdicts
	keyIndex     int // index of the first operation's key
	limitIndex   int // index of the operations' limit; redisscripts.NoIndex: each operation has a limit and an amount of its own
	group        uint16
	n            int64 // amount of each operation
	countsDenied bool
}

// longRun is the length from which a run of equal operations accepts no others. Each run costs the
// script as much as a few operations. An operation that has its own limit and amount costs a little
// more than one that shares them with its run.
const longRun = 8

// encodeRuns appends the runs of all operations.
func (b *batch) encodeRuns() {
	var last opRun
	for i := range b.ops {
		op := b.ops[i]
		next := opRun{first: i, count: 1, keyIndex: b.keyOf[i], limitIndex: b.limitOf[i], group: b.group[i], n: limiters.ClampHits(op.N)}
		next.countsDenied = op.Kind == limiters.OpCountDenied
		switch {
		case op.Kind == limiters.OpInspect:
			next.kind, next.count = redisscripts.KindExtra, b.verdictsOf(i)
		case b.group[i] == 0 && op.Limit.IsConcurrency():
			next.kind = redisscripts.KindConcurrency
		case b.group[i] == 0 && op.Limit.Reserves() && !op.Limit.HasPenalty():
			next.kind = redisscripts.KindReservations
		case op.Limit.UsesExtraState():
			next.kind = redisscripts.KindExtra
		case b.opsOnKey[b.keyOf[i]] == 1 && b.group[i] == 0:
			next.kind = redisscripts.KindAlone
		}
		if !last.join(next) {
			b.appendRun(&last)
			last = next
		}
	}
	b.appendRun(&last)
}

// join adds the run next of one operation to r. It returns false if next does not belong to r.
func (r *opRun) join(next opRun) bool {
	if r.count == 0 || r.group != 0 || next.group != 0 || r.kind != next.kind || r.countsDenied != next.countsDenied {
		return false
	}
	joins, equal := false, next.limitIndex == r.limitIndex && next.n == r.n
	switch next.kind {
	case redisscripts.KindConcurrency, redisscripts.KindReservations:
		joins = true
	case redisscripts.KindSameKey:
		joins = next.keyIndex == r.keyIndex && equal
	case redisscripts.KindAlone:
		joins = next.keyIndex == r.keyIndex+r.count && (equal || r.limitIndex == redisscripts.NoIndex || r.count < longRun)
		if joins && !equal {
			r.limitIndex = redisscripts.NoIndex
		}
	}
	if joins {
		r.count++
	}
	return joins
}

func (b *batch) appendRun(r *opRun) {
	if r.count == 0 {
		return
	}
	kind := r.kind
	if r.countsDenied {
		kind |= redisscripts.CountDeniedFlag
	}
	buf := redisscripts.AppendRun(b.runs, r.count, r.keyIndex, kind, r.limitIndex, r.group, r.n)
	switch r.kind {
	case redisscripts.KindExtra:
		key, limit := b.keyAndLimit(r.first, reservationsKey)
		penalty, penaltyLimit := b.keyAndLimit(r.first, penaltyKey)
		buf = redisscripts.AppendExtra(buf, b.ops[r.first], key, limit, penalty, penaltyLimit)
	case redisscripts.KindConcurrency:
		for i := r.first; i < r.first+r.count; i++ {
			buf = redisscripts.AppendConcurrency(buf, b.ops[i], b.keyOf[i], b.limitOf[i])
		}
	case redisscripts.KindReservations:
		for i := r.first; i < r.first+r.count; i++ {
			key, _ := b.keyAndLimit(i, reservationsKey)
			buf = redisscripts.AppendReservations(buf, b.ops[i], b.keyOf[i], b.limitOf[i], key)
		}
	default:
		for i := r.first; r.limitIndex == redisscripts.NoIndex && i < r.first+r.count; i++ {
			buf = redisscripts.AppendAlone(buf, b.ops[i], b.limitOf[i])
		}
	}
	b.runs = buf
}

// keyAndLimit returns two indices for operation i: its key of the given kind, and the limit for
// that key. Both are redisscripts.NoIndex if the operation has no such key.
func (b *batch) keyAndLimit(i int, kind keyKind) (key, limit int) {
	l := scriptLimit{b.ops[i].Limit, kind}
	if !l.exists() {
		return redisscripts.NoIndex, redisscripts.NoIndex
	}
	return b.keyIndex(b.keys[i] + keySuffixes[kind]), b.limitIndex(l)
}
