package descriptors

import (
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	textBlock = 32 << 10 // bytes
	pathBlock = 1024
)

// An interner stores one copy of each text and limit that rules share, in contiguous blocks. Shared
// parts stay in the processor's cache, and the garbage collector scans one block faster than a
// thousand texts.
type interner struct {
	keys    map[string]string
	limits  map[limiters.Spec]*limiters.Limit
	single  map[RateLimit][]RateLimit
	sources map[source]*source
	texts   *strings.Builder
	nodes   []pathNode
}

func newInterner() interner {
	return interner{
		keys: map[string]string{}, limits: map[limiters.Spec]*limiters.Limit{}, single: map[RateLimit][]RateLimit{},
		texts: &strings.Builder{}, sources: map[source]*source{},
	}
}

func (in *interner) string(text string) string {
	if in.texts.Len()+len(text) > in.texts.Cap() {
		in.texts = &strings.Builder{}
		in.texts.Grow(max(textBlock, len(text)))
	}
	start := in.texts.Len()
	in.texts.WriteString(text)
	return in.texts.String()[start:]
}

func (in *interner) path(nodes []pathNode) []pathNode {
	if len(in.nodes)+len(nodes) > cap(in.nodes) {
		in.nodes = make([]pathNode, 0, max(pathBlock, len(nodes)))
	}
	start := len(in.nodes)
	in.nodes = append(in.nodes, nodes...)
	return in.nodes[start:len(in.nodes):len(in.nodes)]
}

// interned returns the value of a key in all. If there is none yet, it adds the result of value.
func interned[K comparable, V any](all map[K]V, key K, value func() V) V {
	found, ok := all[key]
	if !ok {
		found = value()
		all[key] = found
	}
	return found
}

func (in *interner) key(key string) string {
	return interned(in.keys, key, func() string { return key })
}

func (in *interner) limit(l *limiters.Limit) *limiters.Limit {
	return interned(in.limits, l.Spec(), func() *limiters.Limit { return l })
}

// singleton returns l in a slice of length 1.
func (in *interner) singleton(l RateLimit) []RateLimit {
	return interned(in.single, l, func() []RateLimit { return []RateLimit{l} })
}

func (in *interner) source(s source) *source {
	return interned(in.sources, s, func() *source { return &s })
}
