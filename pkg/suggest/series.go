package suggest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
)

// A series is the requests of one key, in the order of their times. Each is the time since the one before in µs, doubled, and then
// the hits unless they are 1, which the last bit says. Both are varints.
type series struct {
	text []byte
	last int64
}

// seriesOverhead is the memory of a key beside its text and its series, in bytes: about what the map and the allocator take.
const seriesOverhead = 120

func (s *series) add(at, hits int64) {
	since := uint64(at-s.last) << 1
	s.last = at
	if hits == 1 {
		s.text = binary.AppendUvarint(s.text, since)
		return
	}
	s.text = binary.AppendVarint(binary.AppendUvarint(s.text, since|1), hits)
}

// A cursor reads a series.
type cursor struct {
	rest     []byte
	at, hits int64
}

func (s *series) cursor() cursor { return cursor{rest: s.text} }

// next reads a request into at and hits. It returns false at the end.
func (c *cursor) next() bool {
	if len(c.rest) == 0 {
		return false
	}
	since, n := binary.Uvarint(c.rest)
	c.rest, c.at, c.hits = c.rest[n:], c.at+int64(since>>1), 1
	if since&1 != 0 {
		c.hits, n = binary.Varint(c.rest)
		c.rest = c.rest[n:]
	}
	return true
}

// kept reports whether a key belongs to a sample of 1 in 2^halvings. The hash has a prefix, so that it does not depend on any other
// by which a recording may have been sampled.
func kept(key string, halvings uint) bool {
	if halvings == 0 {
		return true
	}
	sum := sha256.Sum256([]byte("weir suggest\x00" + key))
	return uint(bits.TrailingZeros64(binary.BigEndian.Uint64(sum[:]))) >= halvings
}

// maxSeen bounds the key paths that are counted, and maxPaths those in a report.
const maxSeen, maxPaths = 1000, 20

// seenPaths counts the key paths of a recording, for users who ask for one that it does not have.
type seenPaths struct {
	paths map[string]*int64 // descriptors, by the domain, a zero byte and the keys
	text  []byte
}

func (s *seenPaths) add(r *decide.Request) {
	if s.paths == nil {
		s.paths = map[string]*int64{}
	}
	for i := range r.Descriptors {
		entries := r.Descriptors[i].Entries
		s.text = append(append(s.text[:0], r.Domain...), 0)
		for j := range entries {
			if j > 0 {
				s.text = append(s.text, ',')
			}
			s.text = append(s.text, entries[j].Key...)
		}
		p := s.paths[string(s.text)]
		if p == nil {
			if len(s.paths) == maxSeen {
				continue
			}
			p = new(int64)
			s.paths[string(s.text)] = p
		}
		*p++
	}
}

// A KeyPath is the keys of a descriptor, with the number of descriptors that have them.
type KeyPath struct {
	Domain   string `json:"domain"`
	Path     string `json:"path"` // the keys, separated by commas
	Requests int64  `json:"requests"`
}

func (s *seenPaths) list() []KeyPath {
	all := make([]KeyPath, 0, len(s.paths))
	for text, p := range s.paths {
		domain, path, _ := strings.Cut(text, "\x00")
		all = append(all, KeyPath{domain, path, *p})
	}
	slices.SortFunc(all, func(a, b KeyPath) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Domain, b.Domain), strings.Compare(a.Path, b.Path))
	})
	return all[:min(len(all), maxPaths)]
}
