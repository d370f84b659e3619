// Package limiters is the core of Weir: it decides whether the hits of a request fit under a limit.
//
// A hit is the unit of a limit, usually one request. A [Limit] is a number of hits and the
// algorithm that counts them, such as 100 per minute in a fixed window; [NewLimit] makes it from a
// [Spec]. An [Op] is one operation on one key under a Limit, such as a charge of one hit. A [Store]
// keeps a [State] for each key, decides operations, and returns a [Verdict] for each: allowed, or
// denied with the wait.
//
// An algorithm checks hits against a State, and charges them to this State in place, without I/O.
// [Decide] is the decision logic of a Store, without storage. Package memstore stores the States
// that Decide works on, redisstore runs a twin of each algorithm in Lua (pkg/redisscripts), and the
// stores of guard wrap another one. The suite in limiterstest compares every store with Decide,
// verdict by verdict.
//
// A time in an int64 is in microseconds since 1970, and a duration in an int64 in microseconds,
// here and in the stores. Each [time.Duration] of a [Spec] or a [Verdict] is a whole number of
// microseconds. All arithmetic is in integers, so two correct implementations agree exactly.
//
// A key's time never runs back, because an algorithm counts from the later of now and the newest
// time in the key's state. If a state is more than a window ahead of now, a clock jumped and was
// corrected, so the state counts as absent.
package limiters

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// MaxHits bounds hits and counts, which saturate at it. The sum of two such numbers is exact in a
// double, Lua's only number type.
const MaxHits = 1 << 52

// An OpKind is the kind of an operation.
type OpKind uint8

const (
	// OpAddHits charges Hits to the usage of the key, refunds -Hits if they are negative, or peeks
	// (checks without charging) if they are 0. With a Lease, under a limit that reserves, 0 opens a
	// reservation of 0.
	OpAddHits OpKind = iota
	// OpEnd ends the lease. It settles a reservation to Hits, the actual cost; a concurrency limit
	// ignores Hits. An end is always allowed. It must be alone in its group, and its limit must use
	// leases. The store remembers the end of an unknown id for [EndedTTL]: within that time, a
	// charge with the id opens no lease, and a reservation is charged its actual cost.
	OpEnd
	// OpInspect reads the state of the key: it charges nothing, never counts as an offense, and is
	// never answered by a cache. Hits and Lease are ignored. An inspection is allowed if one more
	// hit with a new Lease would be, even with peek=over. The operations of its group must inspect
	// too.
	OpInspect
	// OpCountDenied peeks. If the peek is denied and the limit counts denied hits, it charges Hits,
	// the debt, which the caller has already denied from its cache. The store does both in one
	// step, because the hits must not count in a window that began after the caller denied them.
	// The operation must be ungrouped, under a limit without extra state.
	OpCountDenied
)

// An Op is one operation on Key under Limit.
type Op struct {
	// Key names the client or resource under limit, such as a domain with the entries that matched
	// a rule. A store keeps one state for each key, algorithm and window, so limits that differ
	// only in their maximum share a state.
	Key   string
	Limit *Limit
	Kind  OpKind
	// Hits is the number of hits that Kind charges, refunds, settles or counts, see [ClampHits].
	Hits int64
	// Lease identifies the request under a limit with leases, see [Limit.UsesLeases]; zero for
	// other limits.
	Lease LeaseID

	FallbackRoute
}

// IsRefund reports whether op refunds hits. A refund is always allowed.
func (op *Op) IsRefund() bool { return op.Kind == OpAddHits && op.Hits < 0 }

// Undo returns the operation that undoes op: the end of the lease that op may have opened by its
// verdict v, or else a refund of its hits. It returns false if op has opened no lease and charged
// no hits. A lease that was open already belongs to another request.
func (op *Op) Undo(v *Verdict) (undo Op, needed bool) {
	undo = *op
	if op.mayOpenLease() {
		undo.Hits, undo.Kind, undo.LeaseAt = 0, OpEnd, v.LeaseAt
		return undo, !v.LeaseAlreadyOpen && v.LeaseAt != LeaseNowhere && !IsUncharged(v.Err)
	}
	undo.Hits = -op.Hits
	return undo, op.Kind == OpAddHits && op.Hits > 0
}

// A Group is a non-empty list of operations. If each of them is allowed, all take effect; otherwise
// the group is denied. Charges of one key are checked by the sum of their hits. If the group is
// denied, those limits that deny and count denied hits charge their hits; nothing else is charged
// or refunded.
type Group []Op

// DenyingOp returns an operation that denies its group, because its limit is 0, and writes nothing.
// The others are still checked, and their hits counted if their limit counts denied hits. Ignore
// the verdict of the denying operation.
func DenyingOp(key string) Op { return Op{Key: key, Limit: zeroLimit()} }

var zeroLimit = sync.OnceValue(func() *Limit {
	l, err := NewLimit(Spec{Algorithm: DefaultAlgorithm, Window: time.Second})
	if err != nil {
		panic(err) // impossible: the spec is a constant
	}
	return l
})

// Singles returns a group for each operation. The groups are slices of ops.
func Singles(ops ...Op) []Group {
	groups := make([]Group, len(ops))
	for i := range ops {
		groups[i] = ops[i : i+1 : i+1]
	}
	return groups
}

// EachGroup yields each group with the index of its first operation among those of all groups.
func EachGroup(groups []Group) iter.Seq2[int, Group] {
	return func(yield func(int, Group) bool) {
		first := 0
		for _, g := range groups {
			if !yield(first, g) {
				return
			}
			first += len(g)
		}
	}
}

// EachOp yields each operation of groups with its index among all of them.
func EachOp(groups []Group) iter.Seq2[int, *Op] {
	return func(yield func(int, *Op) bool) {
		for first, g := range EachGroup(groups) {
			for i := range g {
				if !yield(first+i, &g[i]) {
					return
				}
			}
		}
	}
}

// FailAll sets the error of each verdict in out to err, and returns err, as a failed Take does.
func FailAll(out []Verdict, err error) error {
	for i := range out {
		out[i] = Verdict{Err: err}
	}
	return err
}

// A Taker decides operations. It is safe for concurrent use.
type Taker interface {
	// Take decides groups, those on one key in order. The time is that of the store, which may have
	// several servers, each with its clock. Take writes one verdict for each operation to out, in
	// the order of the operations of all groups; len(out) must be their number. Without groups, it
	// returns nil unless ctx has ended or the store is closed.
	//
	// If a verdict has an error, its operation may or may not have taken effect, but never twice.
	// If Take returns an error, each verdict has an error too, the same or another. Take does not
	// retain groups or out.
	Take(ctx context.Context, groups []Group, out []Verdict) error
}

// A Resetter resets keys. It is safe for concurrent use.
type Resetter interface {
	// Reset removes the states of keys, including penalties and leases, so that each key is as if
	// never used. A concurrent operation takes effect either before or after. found reports for
	// each key whether it had a state. On an error, some keys may have been reset.
	Reset(ctx context.Context, keys []StateName) (found []bool, err error)
	// ResetMatching resets the keys for which match returns true. A pass over all keys starts with
	// an empty cursor and continues with Progress.Cursor. A store may divide a pass into steps of
	// bounded time, or make it in one call. A pass resets every matching key that exists from its
	// start to its end. It may miss keys that move between servers meanwhile, and keys of a server
	// that restarts.
	// ResetMatching returns [ErrHashedKeys] if the store has only hashes of keys, and [ErrCursor]
	// for an invalid cursor.
	ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (Progress, error)
}

// A Store keeps the states of keys.
type Store interface {
	Taker
	Resetter
}

// A StateName names the state of a key, which all limits with one StateID share. It can be sent to
// another process.
type StateName struct {
	Key    string        `json:"key"`
	ID     string        `json:"id"`     // the StateID of the limit, see [Limit.StateID]
	Window time.Duration `json:"window"` // the window of the limit
}

// StateName returns the name of the state of a key under l.
func (l *Limit) StateName(key string) StateName { return StateName{key, l.stateID, l.spec.Window} }

// A Progress is the result of one call of ResetMatching.
type Progress struct {
	Scanned int64  // entries that the call has seen; a state may have up to three
	Reset   int64  // states that the call has reset
	Cursor  string // continues the pass; empty when it is complete
}

// ErrHashedKeys is returned by a store that has only hashes of keys and so cannot match them.
var ErrHashedKeys = errors.New("the store has hashes of keys only")

// ErrCursor is returned for a cursor that the store cannot have returned.
var ErrCursor = errors.New("invalid cursor")

// IsRejectedReset reports whether err is [ErrHashedKeys] or [ErrCursor], with which a store rejects
// a reset: it has reset nothing.
func IsRejectedReset(err error) bool {
	return errors.Is(err, ErrHashedKeys) || errors.Is(err, ErrCursor)
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// ClampHits limits n to the range from -[MaxHits] to MaxHits. Stores and decorators clamp [Op].Hits
// themselves.
func ClampHits(n int64) int64 { return max(-MaxHits, min(n, MaxHits)) }
