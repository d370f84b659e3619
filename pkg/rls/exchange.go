package rls

import (
	"sync"

	"github.com/weir-rls/weir/pkg/decide"
)

// An exchange is one request with its response, and the memory for all of its steps. Exchanges are
// pooled: after release, nothing may refer to one.
type exchange struct {
	message     message        // decoded
	decodeErr   error          // why no message was decoded, as a gRPC status; set for each request
	request     decide.Request // the request that the message denotes
	observation Observation    // holds the decide.Result
	wire        []byte         // scratch space for the response
}

var exchangePool = sync.Pool{New: func() any { return new(exchange) }}

func newExchange() *exchange { return exchangePool.Get().(*exchange) }

// Bounds of a pooled exchange. Larger ones are rare and left to the garbage collector.
const (
	maxPooledDescriptors = 16
	maxPooledEntries     = 16      // entries in one descriptor
	maxPooledBytes       = 4 << 10 // of the response
)

// release returns e to the pool. An exchange that panicked must not be released, because it may
// still be in use.
func (e *exchange) release() {
	if cap(e.message.descriptors) > maxPooledDescriptors || cap(e.wire) > maxPooledBytes {
		return
	}
	for i := range e.message.descriptors {
		if cap(e.message.descriptors[i].entries) > maxPooledEntries {
			return
		}
	}
	e.message.clear()
	clear(e.request.Descriptors)
	e.request = decide.Request{Descriptors: e.request.Descriptors[:0]}
	e.observation.Result.Reset()
	e.observation = Observation{Result: e.observation.Result}
	exchangePool.Put(e)
}
