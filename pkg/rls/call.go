package rls

import (
	"sync"

	"github.com/weir-rls/weir/pkg/decide"
)

// A call is a request in progress, with the memory for all of its steps. Calls are pooled: after
// release, nothing may refer to one.
type call struct {
	message     message        // decoded
	decodeErr   error          // why no message was decoded, as a gRPC status; set for each request
	request     decide.Request // the request that the message denotes
	observation Observation    // holds the decide.Result
	wire        []byte         // scratch space for the response
}

var callPool = sync.Pool{New: func() any { return new(call) }}

func newCall() *call { return callPool.Get().(*call) }

// Bounds of a pooled call. Larger calls are rare and left to the garbage collector.
const (
	maxPooledDescriptors = 16
	maxPooledEntries     = 16      // entries in one descriptor
	maxPooledBytes       = 4 << 10 // of the response
)

// release returns c to the pool. A call that panicked must not be released, because it may still be
// in use.
func (c *call) release() {
	if cap(c.message.descriptors) > maxPooledDescriptors || cap(c.wire) > maxPooledBytes {
		return
	}
	for i := range c.message.descriptors {
		if cap(c.message.descriptors[i].entries) > maxPooledEntries {
			return
		}
	}
	c.message.clear()
	clear(c.request.Descriptors)
	c.request = decide.Request{Descriptors: c.request.Descriptors[:0]}
	c.observation.Result.Reset()
	c.observation = Observation{Result: c.observation.Result}
	callPool.Put(c)
}
