package simulate

import "github.com/weir-rls/weir/pkg/decide"

// A retry is a denied request that will be sent again.
type retry struct {
	at       int64 // in µs since 1970
	sequence int64 // of retries that are due at one time
	request  *decide.Request
	sent     int // retries, including this one
}

// retries are a heap in the order of their times. Package container/heap would allocate for each retry.
type retries []retry

func (r *retry) before(other *retry) bool {
	return r.at < other.at || r.at == other.at && r.sequence < other.sequence
}

func (r *retries) push(added retry) {
	h := append(*r, added)
	*r = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// pop removes the earliest retry. There is at least one.
func (r *retries) pop() retry {
	h := *r
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], retry{}
	h = h[:last]
	*r = h
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		if child >= len(h) || !h[child].before(&h[i]) {
			return first
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
