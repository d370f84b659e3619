package grpcmessage

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// maxUntimed is the number of requests that may wait for their messages without timers of their own.
const maxUntimed = 8

// An untimedSet holds the streams of requests that wait for their messages without timers of their own. Messages usually arrive with
// their headers, so under normal load no request pays for a timer. One timer for all of them ends a stream with errTimeout after one to
// two times timeout.
type untimedSet struct {
	used     atomic.Uint32 // a bit for each slot
	sweeping atomic.Bool   // the timer runs
	slots    [maxUntimed]slot
}

type slot struct {
	number int

	mu     sync.Mutex
	stream transportStream // nil: the slot is free
	swept  bool            // a sweep has found the stream
	ended  bool            // a sweep has ended the stream
}

// add returns the slot of stream, which the caller removes; nil if no slot is free.
func (u *untimedSet) add(stream transportStream) *slot {
	number := 0
	for {
		used := u.used.Load()
		number = bits.TrailingZeros32(^used)
		if number >= maxUntimed {
			return nil
		}
		if u.used.CompareAndSwap(used, used|1<<number) {
			break
		}
	}
	s := &u.slots[number]
	s.number = number
	s.mu.Lock()
	s.stream, s.swept, s.ended = stream, false, false
	s.mu.Unlock()
	u.schedule()
	return s
}

// remove frees a slot. It reports whether a sweep has ended the stream.
func (u *untimedSet) remove(s *slot) (ended bool) {
	s.mu.Lock()
	s.stream, ended = nil, s.ended
	s.mu.Unlock()
	u.used.And(^(1 << s.number))
	return ended
}

// schedule starts the timer unless it runs.
func (u *untimedSet) schedule() {
	if !u.sweeping.Load() && u.sweeping.CompareAndSwap(false, true) {
		time.AfterFunc(timeout, u.sweep)
	}
}

// sweep ends the streams that the sweep before has found too. It starts the timer again while a slot is in use.
func (u *untimedSet) sweep() {
	for i := range u.slots {
		s := &u.slots[i]
		s.mu.Lock()
		if s.stream != nil && s.swept {
			_ = s.stream.WriteStatus(errTimeout)
			s.ended = true
		}
		s.swept = true
		s.mu.Unlock()
	}
	u.sweeping.Store(false)
	if u.used.Load() != 0 { // read after sweeping was set, so that either this call or add starts the timer
		u.schedule()
	}
}
