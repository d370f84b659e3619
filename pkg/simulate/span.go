package simulate

// A span has the hits of a key in the last window, (now - window, now], in the order of their times. Each hit has a bit for every
// compared algorithm that admits it.
type span struct {
	hits  []spanHit
	first int
	sums  [demanded + 1]int64
}

type spanHit struct {
	at     int64  // in µs since 1970
	packed uint64 // n<<3 | admitted
}

// maxSpanHit bounds the hits of one request in a span, so that no sum overflows.
const maxSpanHit = 1 << 39

func (h spanHit) n() int64             { return int64(h.packed >> len(compared)) }
func (h spanHit) admitted(by int) bool { return by == demanded || h.packed>>by&1 == 1 }
func (s *span) live() []spanHit        { return s.hits[s.first:] }
func (s *span) expires(before int64) bool {
	return s.first < len(s.hits) && s.hits[s.first].at <= before
}

// expire drops the hits up to a time. It returns their number.
func (s *span) expire(before int64) (dropped int) {
	for ; s.expires(before); s.first++ {
		s.sum(s.hits[s.first], -1)
		dropped++
	}
	switch {
	case s.first == len(s.hits):
		s.hits, s.first = s.hits[:0], 0
	case s.first > 32 && s.first > len(s.hits)/2:
		s.hits = append(make([]spanHit, 0, len(s.hits)), s.live()...)
		s.first = 0
	}
	return dropped
}

func (s *span) add(at, n int64, admitted uint64) {
	h := spanHit{at, uint64(min(n, maxSpanHit))<<len(compared) | admitted}
	s.hits = append(s.hits, h)
	s.sum(h, 1)
}

func (s *span) sum(h spanHit, sign int64) {
	for by := range s.sums {
		if h.admitted(by) {
			s.sums[by] += sign * h.n()
		}
	}
}
