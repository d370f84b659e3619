package limiters

import "unsafe"

// A State is the state of a key under one algorithm and window. The zero State is that of an unused
// key. A State is not safe for concurrent use.
type State struct {
	words [3]int64    // a windowState or a funnelState
	Log   *Log        // the hits of a sliding log; nil if nothing is logged
	Extra *ExtraState // nil if there is none
}

// HeapBytes returns the memory that s points to, in bytes: its log and its extra state.
func (s *State) HeapBytes() (n int) {
	if s.Log != nil {
		n = s.Log.size()
	}
	if s.Extra != nil {
		n += s.Extra.size()
	}
	return n
}

// IsZero reports whether s is the state of an unused key, which a store need not keep.
func (s *State) IsZero() bool { return *s == State{} }

// ResetTime returns when s has fully reset under l, and under every limit that differs from l only
// in its maximum, in µs since 1970. A store may then discard s.
func (l *Limit) ResetTime(s *State) int64 {
	var resetTime int64
	if l.hits != nil {
		resetTime = l.hits.resetTime(s)
	}
	if s.Extra != nil {
		resetTime = max(resetTime, s.Extra.neededUntil(l))
	}
	return resetTime
}

var noLog Log // never changed

// logOrEmpty returns the log of s for reading. It is never nil.
func (s *State) logOrEmpty() *Log {
	if s.Log == nil {
		return &noLog
	}
	return s.Log
}

// ensureLog returns the log of s for changes. It creates one if there is none.
func (s *State) ensureLog() *Log {
	if s.Log == nil {
		s.Log = &Log{}
	}
	return s.Log
}

// removeEmptyLog makes a state whose log is empty equal to a state that never had one.
func (s *State) removeEmptyLog() {
	if s.Log != nil && s.Log.entries.len() == 0 {
		s.Log = nil
	}
}

// An ExtraState holds the penalties of a key and its leases. It is independent of the algorithm.
type ExtraState struct {
	penalty penaltyState
	leases  keyLeases
}

var noExtraState ExtraState // never changed

// extraOrEmpty returns the extra state of s for reading. It is never nil.
func (s *State) extraOrEmpty() *ExtraState {
	if s.Extra == nil {
		return &noExtraState
	}
	return s.Extra
}

func (e *ExtraState) isEmpty() bool { return e.penalty == penaltyState{} && e.leases.isEmpty() }

// neededUntil returns when limit l no longer needs e, in µs since 1970.
func (e *ExtraState) neededUntil(l *Limit) int64 {
	lastExpiry := e.leases.latest()
	if l.penalty == nil {
		return max(lastExpiry, e.penalty.until)
	}
	return max(lastExpiry, e.penalty.resetTime(l.penalty))
}

func (e *ExtraState) size() int { return int(unsafe.Sizeof(*e)) + e.leases.size() }

// ensureExtraState returns the extra state of s for changes. It creates one if there is none.
func (s *State) ensureExtraState() *ExtraState {
	if s.Extra == nil {
		s.Extra = &ExtraState{}
	}
	return s.Extra
}

// removeEmptyExtraState makes a state whose extra state is empty equal to a state that never had
// any.
func (s *State) removeEmptyExtraState() {
	if s.Extra != nil && s.Extra.isEmpty() {
		s.Extra = nil
	}
}
