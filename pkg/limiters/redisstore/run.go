package redisstore

import (
	"encoding/binary"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A runKind is the kind of a run. The header of batch.lua describes each kind.
type runKind byte

const (
	kindShared   runKind = iota // equal hits on one key, or one hit of a group
	kindAlone                   // equal hits, each on the next key; no group, no other hit on these keys
	kindMixed                   // like kindAlone, but each hit has a limit and a count of its own
	kindLeases                  // hits of limits whose state is leases, each with a key, a limit and a count of its own; no group
	kindParts                   // one hit of a limit whose state has parts
	kindReserves                // like kindLeases, for limits with reservations and no penalty

	kindPeeks runKind = 8 // added to one of the first three: the hits are peeks, and their counts are Denied hits
)

// The operations of a run of kindParts.
const (
	opTake = iota
	opEnd
)

// A run is consecutive hits of one kind. Indices count from 1, but first counts from 0.
type run struct {
	kind  runKind
	first int // index of the first hit
	times int // number of hits
	key   int // index of the first hit's key
	limit int // index of the hits' limit
	group uint16
	n     int64 // N of each hit; with peeks, its Denied
	peeks bool
}

// longRun is the length from which a run of equal hits does not become a mixed one. A run costs the script as much as a few
// hits. Each hit of a mixed run costs a little more than one of a run of equal hits.
const longRun = 8

// encodeRuns appends the runs of all hits.
func (b *batch) encodeRuns() {
	var last run
	for i := range b.hits {
		next := run{first: i, times: 1, key: b.index[i], limit: b.limitOf[i], group: b.group[i]}
		next.n, next.peeks = b.count(i)
		switch {
		case b.group[i] == 0 && b.hits[i].Limit.IsConcurrency():
			next.kind = kindLeases
		case b.group[i] == 0 && b.hits[i].Limit.HasLeases() && !b.hits[i].Limit.HasPenalty():
			next.kind = kindReserves
		case b.hits[i].Limit.HasParts():
			next.kind = kindParts
		case b.counts[b.index[i]] == 1 && b.group[i] == 0:
			next.kind = kindAlone
		}
		if !last.join(next) {
			b.appendRun(&last)
			last = next
		}
	}
	b.appendRun(&last)
}

// join adds the run next of one hit to r. It returns false if next does not belong to r.
func (r *run) join(next run) bool {
	if r.times == 0 || r.group != 0 || next.group != 0 || r.peeks != next.peeks {
		return false
	}
	joins, equal := false, next.limit == r.limit && next.n == r.n
	switch next.kind {
	case kindLeases, kindReserves:
		joins = r.kind == next.kind
	case kindShared:
		joins = r.kind == kindShared && next.key == r.key && equal
	case kindAlone:
		alone := r.kind == kindAlone && (equal || r.times < longRun)
		joins = (alone || r.kind == kindMixed) && next.key == r.key+r.times
		if joins && !equal {
			r.kind = kindMixed
		}
	}
	if joins {
		r.times++
	}
	return joins
}

func (b *batch) appendRun(r *run) {
	if r.times == 0 {
		return
	}
	to := binary.BigEndian.AppendUint16(b.runs, uint16(r.times))
	to = binary.BigEndian.AppendUint16(to, uint16(r.key))
	kind := r.kind
	if r.peeks {
		kind += kindPeeks
	}
	to = append(to, byte(kind))
	to = binary.BigEndian.AppendUint16(to, uint16(r.limit))
	to = binary.BigEndian.AppendUint16(to, r.group)
	to = binary.BigEndian.AppendUint64(to, uint64(r.n))
	switch r.kind {
	case kindParts:
		to = b.appendLease(to, r.first)
		to = append(to, b.further(r.first)...)
	case kindLeases, kindReserves:
		for i := r.first; i < r.first+r.times; i++ {
			to = b.appendLease(to, i)
			to = binary.BigEndian.AppendUint16(to, uint16(b.index[i]))
			to = binary.BigEndian.AppendUint16(to, uint16(b.limitOf[i]))
			to = b.appendCount(to, i)
			if r.kind == kindReserves {
				to = append(to, b.further(i)[:4]...)
			}
		}
	case kindMixed:
		for i := r.first; i < r.first+r.times; i++ {
			to = binary.BigEndian.AppendUint16(to, uint16(b.limitOf[i]))
			to = b.appendCount(to, i)
		}
	}
	b.runs = to
}

func (b *batch) appendCount(to []byte, i int) []byte {
	n, _ := b.count(i)
	return binary.BigEndian.AppendUint64(to, uint64(n))
}

// appendLease appends the operation and the lease id of hit i.
func (b *batch) appendLease(to []byte, i int) []byte {
	op := byte(opTake)
	if b.hits[i].End {
		op = opEnd
	}
	return append(append(to, op), b.hits[i].Lease[:]...)
}

// further returns the indices of the further keys of hit i and of their limits.
func (b *batch) further(i int) []byte {
	l, to := b.hits[i].Limit, make([]byte, 0, 8)
	for _, part := range []struct {
		has    bool
		kind   partKind
		suffix string
	}{{reserves(l), partReserve, reserveSuffix}, {l.HasPenalty(), partPenalty, penaltySuffix}} {
		key, limit := 0, 0
		if part.has {
			key, limit = b.keyIndex(b.keys[i]+part.suffix), b.limitIndex(limitPart{l, part.kind})
		}
		to = binary.BigEndian.AppendUint16(to, uint16(key))
		to = binary.BigEndian.AppendUint16(to, uint16(limit))
	}
	return to
}

func reserves(l *limiters.Limit) bool { return l.ReserveNumbers() != nil }
