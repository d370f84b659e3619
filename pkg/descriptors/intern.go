package descriptors

import (
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

const (
	textBlock  = 32 << 10 // bytes
	levelBlock = 1024
)

// An intern keeps one copy of each key and limit that rules share. A request under one of a hundred thousand rules then
// finds the shared parts in the processor's cache. Texts and levels are side by side in blocks, because the garbage collector
// scans one block faster than a thousand texts.
type intern struct {
	keys    map[string]string
	limits  map[limiters.Spec]*limiters.Limit
	single  map[RateLimit][]RateLimit
	sources map[source]*source
	texts   *strings.Builder
	levels  []level
}

func newIntern() intern {
	return intern{
		keys: map[string]string{}, limits: map[limiters.Spec]*limiters.Limit{}, single: map[RateLimit][]RateLimit{},
		texts: &strings.Builder{}, sources: map[source]*source{},
	}
}

// text returns a copy of a text in a block.
func (in *intern) text(text string) string {
	if in.texts.Len()+len(text) > in.texts.Cap() {
		in.texts = &strings.Builder{}
		in.texts.Grow(max(textBlock, len(text)))
	}
	at := in.texts.Len()
	in.texts.WriteString(text)
	return in.texts.String()[at:]
}

// path returns a copy of levels in a block.
func (in *intern) path(levels []level) []level {
	if len(in.levels)+len(levels) > cap(in.levels) {
		in.levels = make([]level, 0, max(levelBlock, len(levels)))
	}
	at := len(in.levels)
	in.levels = append(in.levels, levels...)
	return in.levels[at:len(in.levels):len(in.levels)]
}

func (in *intern) key(key string) string {
	if one, found := in.keys[key]; found {
		return one
	}
	in.keys[key] = key
	return key
}

func (in *intern) limit(l *limiters.Limit) *limiters.Limit {
	if one, found := in.limits[l.Spec()]; found {
		return one
	}
	in.limits[l.Spec()] = l
	return l
}

// only returns a list of l alone.
func (in *intern) only(l RateLimit) []RateLimit {
	one, found := in.single[l]
	if !found {
		one = []RateLimit{l}
		in.single[l] = one
	}
	return one
}

func (in *intern) source(s source) *source {
	one, found := in.sources[s]
	if !found {
		one = &s
		in.sources[s] = one
	}
	return one
}
