package limiters

import "unsafe"

// A State is the state of a key under one algorithm and window. The zero State is that of an unused key. A State is not safe for
// concurrent use.
type State struct {
	CounterState
	*PenaltyAndLeases // changed in place; nil if there are none
}

// A CounterState is the count of hits for a key. The meaning of the words A, B and C depends on the algorithm, and a store must keep the
// first [Limit.StateWords] of them.
type CounterState struct {
	A, B, C int64
	Log     *Log // of a sliding log; changed in place; nil if nothing is logged
}

// charge charges n > 0 hits or refunds -n, whether or not they fit. The limit must have a counter.
func (s *State) charge(l *Limit, now, n int64) {
	s.CounterState = l.counter.charge(s.CounterState, now, n)
}

// GrownBytes returns the memory that s points to, in bytes: its log, penalty and leases.
func (s *State) GrownBytes() int {
	if s.Log == nil && s.PenaltyAndLeases == nil {
		return 0
	}
	return s.grownBytes()
}

func (s *State) grownBytes() (n int) {
	if s.Log != nil {
		n = s.Log.size()
	}
	if s.PenaltyAndLeases != nil {
		n += s.PenaltyAndLeases.size()
	}
	return n
}

// IsZero reports whether s is the state of an unused key, which a store need not keep.
func (s *State) IsZero() bool { return *s == State{} }

// ResetTime returns when s has fully reset under every maximum of l, in µs since 1970. A store may then discard s.
func (l *Limit) ResetTime(s *State) int64 {
	resetTime := int64(0)
	if !l.IsConcurrency() {
		resetTime = l.counter.resetTime(s.CounterState)
	}
	if s.PenaltyAndLeases != nil {
		resetTime = max(resetTime, s.PenaltyAndLeases.expires(l))
	}
	return resetTime
}

// PenaltyAndLeases are the penalty and the leases of a key. They are independent of the algorithm.
type PenaltyAndLeases struct {
	Penalty Penalty
	Leases  Leases
}

func (p *PenaltyAndLeases) isEmpty() bool { return p.Penalty == Penalty{} && p.Leases.isEmpty() }

// expires returns when limit l no longer needs p, in µs since 1970.
func (p *PenaltyAndLeases) expires(l *Limit) int64 {
	expires := p.Leases.latest()
	if l.penalty == nil {
		return max(expires, p.Penalty.Until)
	}
	return max(expires, p.Penalty.resetTime(l.penalty))
}

func (p *PenaltyAndLeases) size() int { return int(unsafe.Sizeof(*p)) + p.Leases.size() }

// withPenaltyAndLeases returns the penalty and the leases of s, which it creates if there are none.
func (s *State) withPenaltyAndLeases() *PenaltyAndLeases {
	if s.PenaltyAndLeases == nil {
		s.PenaltyAndLeases = &PenaltyAndLeases{}
	}
	return s.PenaltyAndLeases
}

// dropEmpty makes a state whose penalty and leases are empty equal to one that never had any.
func (s *State) dropEmpty() {
	if s.PenaltyAndLeases != nil && s.PenaltyAndLeases.isEmpty() {
		s.PenaltyAndLeases = nil
	}
}
