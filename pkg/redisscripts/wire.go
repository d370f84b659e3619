package redisscripts

import (
	"slices"
	"strconv"
	"strings"
)

// A RunKind is the kind of a run. The header of batch.lua describes each kind, and which decider takes it.
type RunKind byte

// The kinds.
const (
	KindSameKey      RunKind = iota // equal operations on one key, or one operation of a group
	KindAlone                       // operations on successive keys, without a group and without others on these keys
	KindConcurrency                 // operations under concurrency limits, without a group; each has its own key, limit and amount
	KindExtra                       // one operation under a limit with extra state, or an inspection
	KindReservations                // like KindConcurrency, for limits with reservations and no penalty

	// ChargeDeniedFlag is added to one of the first two kinds if the operations are of the kind limiters.OpChargeDenied.
	ChargeDeniedFlag RunKind = 8
)

// A layout lists the fields of each operation of a run, in the form of struct.unpack: a letter and the size. See ARGV[#] in batch.lua.
type layout []string

var (
	aloneLayout        = layout{"I2", "i8"}
	concurrencyLayout  = layout{"I1", "c16", "I2", "I2", "i8"}
	reservationsLayout = slices.Concat(concurrencyLayout, layout{"I2"})
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

// The results of an operation in a reply.
const (
	ResultDenied = iota
	ResultAllowed
	ResultFailed
	ResultPenalized // denied, and the penalty of the key ends at retry
	ResultTooManyReservations
	ResultPenaltyBegan // as ResultPenalized, and the penalty began with this operation

	ResultDuringPenalty = 8 // added to a denial during a penalty that ends before retry
)
