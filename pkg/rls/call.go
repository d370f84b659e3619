package rls

import (
	"sync"

	"github.com/weir-rls/weir/pkg/decide"
)

// A call is one request on its way through the service, with the memory for all of its steps. Calls are pooled: nothing
// may keep a pointer or a slice into a call after release.
type call struct {
	message     message        // decoded
	malformed   error          // the gRPC status of a message that could not be decoded
	request     decide.Request // its meaning
	observation Observation    // holds the decide.Result
}

var calls = sync.Pool{New: func() any { return new(call) }}

func newCall() *call { return calls.Get().(*call) }

// The largest call that is pooled. Larger ones are few, and their memory is better freed.
const (
	maxPooledDescriptors = 16
	maxPooledEntries     = 16 // of one descriptor
)

// release returns c to the pool. A call that met a panic must not be released: something may still use it.
func (c *call) release() {
	if cap(c.message.descriptors) > maxPooledDescriptors || c.observation.Size() > 2*maxPooledDescriptors {
		return
	}
	for i := range c.message.descriptors {
		if cap(c.message.descriptors[i].entries) > maxPooledEntries {
			return
		}
	}
	c.message.clear()
	c.malformed = nil
	clear(c.request.Descriptors)
	c.request = decide.Request{Descriptors: c.request.Descriptors[:0]}
	c.observation.Reset()
	c.observation.Err = nil // each call sets the other fields
	calls.Put(c)
}
