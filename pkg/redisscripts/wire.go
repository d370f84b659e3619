package redisscripts

// A RunKind is the kind of a run. The header of batch.lua describes each kind, and which decider takes it.
type RunKind byte

// The kinds.
const (
	KindSameKey      RunKind = iota // equal hits on one key, or one hit of a group
	KindAlone                       // hits on successive keys, without a group and without other hits on these keys
	KindConcurrency                 // hits under concurrency limits, without a group; each has its own key, limit and amount
	KindExtra                       // one hit of a limit with extra state, or an inspection
	KindReservations                // like KindConcurrency, for limits with reservations and no penalty

	// ChargeDeniedFlag is added to one of the first two kinds if the operation of the hits is limiters.OpChargeDenied.
	ChargeDeniedFlag RunKind = 8
)

// The results of a hit in a reply.
const (
	ResultDenied = iota
	ResultAllowed
	ResultFailed
	ResultPenalized // denied, and the penalty of the key ends at retry
	ResultTooManyReservations
	ResultPenaltyBegan // as ResultPenalized, and the penalty began with this hit

	ResultDuringPenalty = 8 // added to a denial during a penalty that ends before retry
)
