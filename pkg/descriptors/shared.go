package descriptors

import (
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// shared holds once what many rules have in common. Of a hundred thousand rules each request needs one that no cache
// holds; what it has in common with the others, most of its limit and its keys, is then there already. What each rule has
// to itself lies side by side in blocks: the collector finds a block quicker than the thousand texts in it.
type shared struct {
	keys   map[string]string
	limits map[limiters.Spec]*limiters.Limit
	single map[RateLimit][]RateLimit
	texts  *strings.Builder
	levels []level
}

func newShared() shared {
	return shared{
		keys: map[string]string{}, limits: map[limiters.Spec]*limiters.Limit{}, single: map[RateLimit][]RateLimit{},
		texts: &strings.Builder{},
	}
}

const (
	textBlock  = 32 << 10 // bytes
	levelBlock = 1024
)

// text is a copy of s in a block of texts.
func (s *shared) text(text string) string {
	if s.texts.Len()+len(text) > s.texts.Cap() {
		s.texts = &strings.Builder{}
		s.texts.Grow(max(textBlock, len(text)))
	}
	at := s.texts.Len()
	s.texts.WriteString(text)
	return s.texts.String()[at:]
}

// path is a copy of levels in a block of them.
func (s *shared) path(levels []level) []level {
	if len(s.levels)+len(levels) > cap(s.levels) {
		s.levels = make([]level, 0, max(levelBlock, len(levels)))
	}
	at := len(s.levels)
	s.levels = append(s.levels, levels...)
	return s.levels[at:len(s.levels):len(s.levels)]
}

func (s *shared) key(key string) string {
	if one, found := s.keys[key]; found {
		return one
	}
	s.keys[key] = key
	return key
}

func (s *shared) limit(l *limiters.Limit) *limiters.Limit {
	if one, found := s.limits[l.Spec()]; found {
		return one
	}
	s.limits[l.Spec()] = l
	return l
}

// only is a list of l alone.
func (s *shared) only(l RateLimit) []RateLimit {
	one, found := s.single[l]
	if !found {
		one = []RateLimit{l}
		s.single[l] = one
	}
	return one
}
