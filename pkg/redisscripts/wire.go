package redisscripts

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// This file declares the arguments of the script and its reply, and encodes and decodes them.
// Numbers are big endian, times are in µs since 1970, and durations in µs. Indices begin at 1, and
// 0 is the index of nothing.
//
//	KEYS       the keys, each once
//	ARGV[1]    now, for tests, or 0 for the server's time; not_after, the deadline in the
//	           server's time, or 0 for none; 8 bytes each
//	ARGV[2..]  the limits, see AppendLimit
//	ARGV[#]    the runs: each is a runLayout and, for most kinds, a layout for each operation
//	reply[1]   the server's time in 8 bytes, and a verdictLayout for each operation; a second one,
//	           whose retry is the time left of the penalty, for an inspection under a limit with a
//	           penalty; none if the call ran after not_after, and charged nothing
//	reply[2..] the reasons of failed operations

// A RunKind is the kind of a [Run].
type RunKind byte

// The kinds. The header of batch.lua names the decider of each.
const (
	KindSameKey      RunKind = iota // ungrouped operations with the same key, limit and n, which have no layouts
	KindAlone                       // ungrouped operations on successive keys, each the only one on its key; aloneLayouts
	KindGrouped                     // a group without extra state; groupedLayouts
	KindConcurrency                 // ungrouped operations under concurrency limits; concurrencyLayouts
	KindReservations                // ungrouped operations under limits with reservations and no penalty; extraLayouts
	KindExtra                       // any other group; any other ungrouped operation is a group of one; extraLayouts

	// countDeniedFlag is added to KindSameKey or KindAlone if the operations are of the kind
	// limiters.OpCountDenied. Then each is a peek, and n is the hits that it charges if it is
	// denied.
	countDeniedFlag RunKind = 8
)

// A layout lists the fields of a part of an argument or of the reply.
type layout []field

type field struct {
	name   string // for readers only
	format string // of struct.unpack: a letter and the size
}

// NoIndex is the index of nothing for the functions of this file, whose indices begin at 0.
const NoIndex = -1

// MaxRunOps is the largest number of operations of a run other than a group, so that one MGET can
// read their keys.
const MaxRunOps = 1000

// A Run is consecutive operations that the script decides in one way. A group is one run.
type Run struct {
	Kind        RunKind
	OpCount     int
	KeyIndex    int   // of the key of the first operation, unless the run is a group
	LimitIndex  int   // of the limit of the operations of a KindSameKey run
	Hits        int64 // their Hits
	CountDenied bool  // the operations are of the kind limiters.OpCountDenied
}

var runLayout = layout{{"op_count", "I2"}, {"key_index", "I2"}, {"kind", "I1"}, {"limit_index", "I2"}, {"n", "i8"}}

// AppendRun appends the runLayout of r.
func AppendRun(b []byte, r *Run) []byte {
	kind := r.Kind
	if r.CountDenied {
		kind |= countDeniedFlag
	}
	b = binary.BigEndian.AppendUint16(b, uint16(r.OpCount))
	b = append(appendIndex(b, r.KeyIndex), byte(kind))
	return binary.BigEndian.AppendUint64(appendIndex(b, r.LimitIndex), uint64(r.Hits))
}

var aloneLayout = layout{{"limit_index", "I2"}, {"n", "i8"}}

// AppendAlone appends the aloneLayout of op.
func AppendAlone(b []byte, op *limiters.Op, limitIndex int) []byte {
	return binary.BigEndian.AppendUint64(appendIndex(b, limitIndex), uint64(limiters.ClampHits(op.Hits)))
}

var groupedLayout = slices.Concat(layout{{"key_index", "I2"}}, aloneLayout)

// AppendGrouped appends the groupedLayout of op.
func AppendGrouped(b []byte, op *limiters.Op, keyIndex, limitIndex int) []byte {
	return AppendAlone(appendIndex(b, keyIndex), op, limitIndex)
}

var concurrencyLayout = slices.Concat(layout{{"op_kind", "I1"}, {"id", "c16"}}, groupedLayout)

// AppendConcurrency appends the concurrencyLayout of op.
func AppendConcurrency(b []byte, op *limiters.Op, keyIndex, limitIndex int) []byte {
	return AppendGrouped(append(append(b, byte(op.Kind)), op.Lease[:]...), op, keyIndex, limitIndex)
}

var extraLayout = slices.Concat(concurrencyLayout, layout{{"reservations_index", "I2"}, {"penalty_index", "I2"}})

// AppendExtra appends the extraLayout of op.
func AppendExtra(b []byte, op *limiters.Op, keyIndex, limitIndex, reservationsIndex, penaltyIndex int) []byte {
	return appendIndex(appendIndex(AppendConcurrency(b, op, keyIndex, limitIndex), reservationsIndex), penaltyIndex)
}

func appendIndex(b []byte, i int) []byte { return binary.BigEndian.AppendUint16(b, uint16(i+1)) }

var verdictLayout = layout{{"result", "I1"}, {"used", "i8"}, {"retry", "i8"}, {"reset", "i8"}}

// VerdictSize is the size of a verdictLayout.
var VerdictSize = verdictLayout.size()

// DecodeVerdict decodes the verdictLayout at the start of text. A retry of -1 means never.
func DecodeVerdict(text string) (result Result, used, retry, reset int64) {
	return Result(text[0]), DecodeNumber(text[1:]), DecodeNumber(text[9:]), DecodeNumber(text[17:]) // as in verdictLayout
}

// DecodeNumber decodes the 8 bytes at the start of text.
func DecodeNumber(text string) int64 { return int64(binary.BigEndian.Uint64([]byte(text))) }

// formats returns the formats of all fields.
func (l layout) formats() (formats string) {
	for _, f := range l {
		formats += f.format
	}
	return formats
}

// String returns l as a string of Lua, with numbers in big endian.
func (l layout) String() string { return "'>" + l.formats() + "'" }

// size returns the encoded bytes.
func (l layout) size() (bytes int) {
	for _, f := range l {
		n, _ := strconv.Atoi(f.format[1:])
		bytes += n
	}
	return bytes
}

// AppendLimit appends the element of ARGV for l at now, which only matters for calendar windows:
//   - the name of the algorithm, the maximum and, except under concurrency, the window and two
//     flags: whether denied hits count, and whether peeks are allowed at the limit
//   - the numbers of [limiters.Limit.TwinArgs], which the algorithm's Lua file lists
//   - if l reserves or has a penalty: the TTL of its reservations, or 0, and
//     [limiters.Limit.RefundableFor]
//   - if l has a penalty: the arguments of penalty.lua
func AppendLimit(b []byte, l *limiters.Limit, now time.Time) []byte {
	b = appendNumbers(append(append(b, l.Algorithm()...), 0), l.Spec().Max)
	if !l.IsConcurrency() {
		b = appendNumbers(b, l.Window().Microseconds(), flag(l.CountsDenied()), flag(l.PeeksOver()))
	}
	args, n := l.TwinArgs(now.UnixMicro())
	b = appendNumbers(b, args[:n]...)
	if l.Reserves() || l.HasPenalty() {
		b = appendNumbers(b, l.LeaseTTL().Microseconds(), l.RefundableFor().Microseconds())
	}
	if l.HasPenalty() {
		p := l.Penalty()
		b = appendNumbers(b, p.After, p.Within.Microseconds(), p.For.Microseconds(), p.Factor, p.Max.Microseconds(), p.Forget.Microseconds())
	}
	return b
}

// appendNumbers appends each number in 8 bytes.
func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// A Result is the result of an operation in a reply.
type Result byte

// The values of Result.
const (
	ResultDenied Result = iota
	ResultAllowed
	ResultFailed    // used is the index of the reason, from 1
	ResultPenalized // denied, and the penalty of the key ends at retry
	ResultTooManyLeases
	ResultPenaltyBegan     // as ResultPenalized, and the penalty began with this operation
	ResultLeaseAlreadyOpen // allowed, and the id had a lease already

	ResultDuringPenalty Result = 8 // added to a denial during a penalty that ends before retry
)
