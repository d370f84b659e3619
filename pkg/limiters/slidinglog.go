package limiters

import (
	"fmt"
	"sort"
	"unsafe"
)

// LogMax is the largest maximum of a sliding log. A log remembers every hit: for larger limits use a funnel, whose state has
// a constant size.
const LogMax = 1_000_000

// A Log remembers when each hit was charged. A hit fits if it and the hits of the last window, (t - window, t], are at most
// the maximum. So no window of that length, wherever it begins, admits more than the maximum. Denied hits are logged only
// if the limit counts them, and then at most twice the maximum is kept. A peek is denied if one more hit would be.
//
// Hits of one microsecond share an entry. An entry has the count of all hits up to it. So the number of hits between two
// times is a difference, and every query is a binary search.
type Log struct {
	entries deque
	base    uint32 // the count before the first entry
}

// An entry says that sum hits were logged up to and including time at, modulo 2^32.
type entry struct {
	at  int64
	sum uint32
}

var slidingLogAlgorithm = algorithm{
	name: "sliding_log",
	tag:  func(*Limit) string { return "l" },
	complete: func(l *Limit) error {
		if l.spec.Max > LogMax {
			return fmt.Errorf("a sliding log of %d hits is too large: want at most %d, or the algorithm funnel, "+
				"which needs no memory per hit", l.spec.Max, LogMax)
		}
		return nil
	},
	numbers: func(l *Limit) []int64 {
		return []int64{l.spec.Max, l.window, flag(l.spec.CountDenied)}
	},
	grows: true,
	fits:  func(l *Limit, s State, now, n int64) (bool, int64) { return logOf(s).fits(l, now, n) },
	charge: func(l *Limit, s State, now, n int64) State {
		switch {
		case s.Log == nil && n < 0:
			return s
		case s.Log == nil:
			s.Log = &Log{}
		}
		if s.Log.charge(l, now, n); s.Log.entries.len() == 0 {
			return State{}
		}
		return s
	},
	usage:     func(l *Limit, s State, now int64) (used, reset int64) { return logOf(s).usage(l, now) },
	resetTime: func(l *Limit, s State) int64 { return logOf(s).resetTime(l) },
}

// nothingLogged stands for a log that a state does not have.
var nothingLogged Log

func logOf(s State) *Log {
	if s.Log == nil {
		return &nothingLogged
	}
	return s.Log
}

// A liveRange is the part of a log within the window at a time.
type liveRange struct {
	at    int64  // the later of now and the newest entry
	first int    // index of the first entry within the window
	base  uint32 // the count before it
	used  int64
}

func (s *Log) live(l *Limit, now int64) liveRange {
	n := s.entries.len()
	if n == 0 {
		return liveRange{at: now}
	}
	newest := s.entries.newest
	if newest.at-now > l.window {
		return liveRange{at: now, first: n, base: newest.sum}
	}
	v := liveRange{at: max(now, newest.at), base: s.base}
	if s.entries.oldest <= v.at-l.window {
		v.first = sort.Search(n, func(i int) bool { return s.entries.get(i).at > v.at-l.window })
		v.base = s.entries.get(v.first - 1).sum
	}
	v.used = int64(newest.sum - v.base)
	return v
}

// upTo returns the first entry of v with n hits of v up to and including it.
func (s *Log) upTo(v liveRange, n int64) int {
	return v.first + sort.Search(s.entries.len()-v.first, func(i int) bool {
		return int64(s.entries.get(v.first+i).sum-v.base) >= n
	})
}

func (s *Log) fits(l *Limit, now, n int64) (bool, int64) {
	n = max(n, 1)
	if n > l.spec.Max {
		return false, -1
	}
	v := s.live(l, now)
	if v.used+n <= l.spec.Max {
		return true, 0
	}
	leaves := s.entries.get(s.upTo(v, v.used+n-l.spec.Max))
	return false, leaves.at + l.window - now
}

func (s *Log) charge(l *Limit, now, n int64) {
	v := s.live(l, now)
	if n < 0 {
		s.refund(v, min(-n, v.used))
		return
	}
	n = min(n, 2*l.spec.Max)
	s.entries.dropFront(v.first)
	s.base = v.base
	if over := v.used + n - 2*l.spec.Max; over > 0 {
		// Only denied hits get here. The oldest hits leave, if need be a part of an entry.
		v.first = 0
		over = min(over, v.used)
		s.entries.dropFront(s.upTo(v, over+1))
		s.base += uint32(over)
	}
	sum := s.base + uint32(n)
	if s.entries.len() > 0 {
		last := s.entries.newest
		if sum = last.sum + uint32(n); last.at == v.at {
			s.entries.setSum(sum)
			return
		}
	}
	s.entries.push(entry{v.at, sum})
}

// refund takes the newest n hits out of the log.
func (s *Log) refund(v liveRange, n int64) {
	switch {
	case n == 0:
		return
	case n == v.used:
		*s = Log{}
		return
	}
	last := s.upTo(v, v.used-n)
	s.entries.dropBack(s.entries.len() - 1 - last)
	s.entries.setSum(v.base + uint32(v.used-n))
	s.entries.dropFront(v.first)
	s.base = v.base
}

func (s *Log) usage(l *Limit, now int64) (used, reset int64) {
	v := s.live(l, now)
	if v.used == 0 {
		return 0, 0
	}
	return v.used, s.entries.newest.at + l.window - now
}

func (s *Log) resetTime(l *Limit) int64 {
	if s.entries.len() == 0 {
		return 0
	}
	return s.entries.newest.at + l.window
}

// size returns the memory of the log with its entries, in bytes.
func (s *Log) size() int { return logSize + s.entries.size() }

const logSize = int(unsafe.Sizeof(Log{}))
