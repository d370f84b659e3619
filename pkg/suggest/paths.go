package suggest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
)

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
