package rls

import (
	"sync"
	"time"
)

// A call is a request on its way, with all that becomes of it. Calls are used again, as is the memory of their slices:
// what a call holds goes to nobody who keeps it.
type call struct {
	start    time.Duration // by now, which is never 0
	decided  time.Duration // the same: when the store had answered
	asked    asking
	planned  planned
	statuses []descriptorStatus
	answer   Answer
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall() *call { return calls.Get().(*call) }

// What a call may hold and yet be used again: the few large ones are not to be kept.
const (
	maxReusedDescriptors = 16
	maxReusedEntries     = 16 // of a descriptor
)

// release gives a call back, which is not used afterwards. One that met a panic is not given back: nobody knows who
// still uses it.
func (c *call) release() {
	if cap(c.asked.descriptors) > maxReusedDescriptors || cap(c.planned.hits) > 2*maxReusedDescriptors {
		return
	}
	for i := range c.asked.descriptors {
		if cap(c.asked.descriptors[i].entries) > maxReusedEntries {
			return
		}
	}
	c.start, c.decided = 0, 0
	c.asked.clear()
	c.planned.clear()
	clear(c.statuses)
	c.statuses = c.statuses[:0]
	c.answer.clear()
	calls.Put(c)
}

func (a *Answer) clear() {
	clear(a.Unmatched)
	clear(a.Decisions)
	*a = Answer{Unmatched: a.Unmatched[:0], Decisions: a.Decisions[:0]}
}

var epoch = time.Now().Add(-time.Second)

// now is a time of this process, for differences alone. It costs half of time.Now, which reads two clocks; yet reading it
// is among the dearest things that a request does.
func now() time.Duration { return time.Since(epoch) }
