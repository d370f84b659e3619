package redisscripts

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
)

// This file declares the arguments of the script and its reply. Numbers are big endian, times are
// in µs since 1970, and durations in µs. Indices begin at 1, and 0 is the index of nothing.
//
//	KEYS       the keys, each once
//	ARGV[1]    now, or 0 for the server's time; not_after, the deadline in the server's time, or 0
//	           for none; 8 bytes each
//	ARGV[2..]  the limits, see AppendLimit
//	ARGV[#]    the runs: each is a runLayout and the layouts of its RunKind
//	reply[1]   the server's time in 8 bytes, and a verdictLayout for each operation; none if the
//	           call ran after not_after, and charged nothing
//	reply[2..] the reasons of failed operations

// A RunKind is the kind of a run: consecutive operations that cost less together than one by one.
type RunKind byte

// The kinds.
const (
	KindSameKey      RunKind = iota // operations with the same key, limit and n, or one operation of a group
	KindAlone                       // operations on successive keys, without a group and without others on these keys
	KindConcurrency                 // operations under concurrency limits, without a group; a concurrencyLayout follows for each
	KindExtra                       // an operation under a limit with extra state, or an inspection; an extraLayout follows
	KindReservations                // under limits with reservations and no penalty, without a group; a reservationsLayout follows for each

	// ChargeDeniedFlag is added to one of the first two kinds if the operations are of the kind
	// limiters.OpChargeDenied. Then each is a peek, and n the hits that it charges if it is denied.
	ChargeDeniedFlag RunKind = 8
)

// A layout lists fields in the form of struct.unpack: a letter and the size.
type layout []string

var (
	// The number of operations, the first key, the kind, the limit, the group (0 = none), n. The
	// runs of a group follow each other. An inspection of a limit with a penalty counts as 2
	// operations: the retry of the second verdict is the time left of the penalty.
	runLayout = layout{"I2", "I2", "I1", "I2", "I2", "i8"}
	// The limit and n of an operation, after a KindAlone run without a limit.
	aloneLayout = layout{"I2", "i8"}
	// The limiters.OpKind, the lease id (zeros = none), key and limit of the reservations, key and
	// limit of the penalty.
	extraLayout = layout{"I1", "c16", "I2", "I2", "I2", "I2"}
	// The limiters.OpKind, the lease id (zeros = none), the key, the limit, n.
	concurrencyLayout = layout{"I1", "c16", "I2", "I2", "i8"}
	// As concurrencyLayout, then the key of the reservations. In ARGV, the limit of the
	// reservations follows the limit of the operation.
	reservationsLayout = slices.Concat(concurrencyLayout, layout{"I2"})
	// The result, used, retry (-1 = never), reset.
	verdictLayout = layout{"I1", "i8", "i8", "i8"}
)

// String returns l as a string of Lua, with numbers in big endian.
func (l layout) String() string { return "'>" + strings.Join(l, "") + "'" }

// size returns the bytes of each operation.
func (l layout) size() (bytes int) {
	for _, field := range l {
		n, _ := strconv.Atoi(field[1:])
		bytes += n
	}
	return bytes
}

// AppendLimit appends the element of ARGV for a limit: the name of a Lua file, and the numbers that
// it takes.
func AppendLimit(b []byte, file string, numbers []int64) []byte {
	b = append(append(b, file...), 0)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// The results of an operation in a reply.
const (
	ResultDenied = iota
	ResultAllowed
	ResultFailed    // used is the index of the reason, from 1
	ResultPenalized // denied, and the penalty of the key ends at retry
	ResultTooManyLeases
	ResultPenaltyBegan // as ResultPenalized, and the penalty began with this operation

	ResultDuringPenalty = 8 // added to a denial during a penalty that ends before retry
)
