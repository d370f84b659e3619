package descriptors

import "github.com/weir-rls/weir/pkg/limiters"

// shared holds once what many rules have in common. Of a hundred thousand rules each request needs one that no cache
// holds; what it has in common with the others, most of its limit and its keys, is then there already.
type shared struct {
	keys   map[string]string
	limits map[limiters.Spec]*limiters.Limit
	single map[RateLimit][]RateLimit
}

func newShared() shared {
	return shared{map[string]string{}, map[limiters.Spec]*limiters.Limit{}, map[RateLimit][]RateLimit{}}
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
