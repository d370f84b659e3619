package redisscripts

import (
	"regexp"
	"strconv"
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

// A layout is the format with which struct.unpack reads each operation of a run, see ARGV[#] in batch.lua.
type layout string

const (
	aloneLayout        layout = ">I2i8"
	concurrencyLayout  layout = ">I1c16I2I2i8"
	reservationsLayout        = concurrencyLayout + "I2"
)

// String returns l as a string of Lua.
func (l layout) String() string { return "'" + string(l) + "'" }

var sizes = regexp.MustCompile(`\d+`)

// size returns the bytes of each operation.
func (l layout) size() (bytes int) {
	for _, size := range sizes.FindAllString(string(l), -1) {
		n, _ := strconv.Atoi(size)
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
