package redisstore

import (
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// An opRun is a run with the index of its first operation.
type opRun struct {
	redisscripts.Run
	first int
}

// longRun is the length from which a run of equal operations accepts no others. Each run costs the
// script as much as a few operations. An operation that has its own limit and amount costs a little
// more than one that shares them with its run.
const longRun = 8

// encodeRuns appends the runs of all operations.
func (b *batch) encodeRuns() {
	var last opRun
	for i, op := range b.ops {
		next := opRun{first: i, Run: redisscripts.Run{
			Kind: b.runKind(i), VerdictCount: b.verdictCount(i), Key: b.keyOf[i], Limit: b.limitOf[i], Group: b.group[i],
			N: limiters.ClampHits(op.N), CountDenied: op.Kind == limiters.OpCountDenied,
		}}
		if !last.join(next) {
			b.appendRun(&last)
			last = next
		}
	}
	b.appendRun(&last)
}

// runKind returns the kind of a run of operation i.
func (b *batch) runKind(i int) redisscripts.RunKind {
	op, ungrouped := b.ops[i], b.group[i] == 0
	switch {
	case op.Kind == limiters.OpInspect:
		return redisscripts.KindExtra
	case ungrouped && op.Limit.IsConcurrency():
		return redisscripts.KindConcurrency
	case ungrouped && op.Limit.Reserves() && !op.Limit.HasPenalty():
		return redisscripts.KindReservations
	case op.Limit.UsesExtraState():
		return redisscripts.KindExtra
	case ungrouped && b.opsOnKey[b.keyOf[i]] == 1:
		return redisscripts.KindAlone
	case ungrouped:
		return redisscripts.KindSameKey
	default:
		return redisscripts.KindGrouped
	}
}

// join adds the run next of one operation to r. It returns false if next does not belong to r.
func (r *opRun) join(next opRun) bool {
	if r.VerdictCount == 0 || r.Kind != next.Kind || r.CountDenied != next.CountDenied {
		return false
	}
	joins, equal := false, next.Limit == r.Limit && next.N == r.N
	switch next.Kind { // an operation of any other kind is a run of its own
	case redisscripts.KindConcurrency, redisscripts.KindReservations:
		joins = true
	case redisscripts.KindSameKey:
		joins = next.Key == r.Key && equal
	case redisscripts.KindAlone:
		joins = next.Key == r.Key+r.VerdictCount && (equal || r.Limit == redisscripts.NoIndex || r.VerdictCount < longRun)
		if joins && !equal {
			r.Limit = redisscripts.NoIndex
		}
	}
	if joins {
		r.VerdictCount++
	}
	return joins
}

func (b *batch) appendRun(r *opRun) {
	if r.VerdictCount == 0 {
		return
	}
	buf := redisscripts.AppendRun(b.runs, &r.Run)
	switch r.Kind {
	case redisscripts.KindExtra:
		buf = redisscripts.AppendExtra(buf, b.ops[r.first], b.target(r.first, reservationsKey), b.target(r.first, penaltyKey))
	case redisscripts.KindConcurrency:
		for i := r.first; i < r.first+r.VerdictCount; i++ {
			buf = redisscripts.AppendConcurrency(buf, b.ops[i], b.target(i, usageKey))
		}
	case redisscripts.KindReservations:
		for i := r.first; i < r.first+r.VerdictCount; i++ {
			buf = redisscripts.AppendReservations(buf, b.ops[i], b.target(i, usageKey), b.target(i, reservationsKey).Key)
		}
	default:
		for i := r.first; r.Limit == redisscripts.NoIndex && i < r.first+r.VerdictCount; i++ {
			buf = redisscripts.AppendAlone(buf, b.ops[i], b.limitOf[i])
		}
	}
	b.runs = buf
}

// target returns where the state of operation i under a key of the given kind is.
func (b *batch) target(i int, kind keyKind) redisscripts.Target {
	l := scriptLimit{b.ops[i].Limit, kind}
	switch {
	case kind == usageKey:
		return redisscripts.Target{Key: b.keyOf[i], Limit: b.limitOf[i]}
	case l.exists():
		return redisscripts.Target{Key: b.keyIndex(b.keys[i] + keySuffixes[kind]), Limit: b.limitIndex(l)}
	default:
		return redisscripts.NoTarget
	}
}
