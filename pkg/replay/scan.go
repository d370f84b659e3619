package replay

import (
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A scanner reads the plain form of a line: the fields in the order of the documentation, without spaces, escapes and texts beyond
// ASCII, and hits as one number. The recorder writes most lines so. It is some ten times as fast as encoding/json, and refuses
// every other line.
type scanner struct {
	text string
	at   int
}

// scan parses a line in its plain form. It reports false for any other line, also if the line is faulty.
func scan(text []byte) (line Line, ok bool) {
	s := &scanner{text: string(text)}
	if !s.skip(`{"t":`) {
		return line, false
	}
	if line.At, ok = s.time(); !ok || !s.skip(`,"domain":`) {
		return line, false
	}
	if line.Request.Domain, ok = s.string(); !ok || line.Request.Domain == "" || !s.skip(`,"descriptors":[`) {
		return line, false
	}
	if line.Request.Descriptors, ok = s.descriptors(); !ok {
		return line, false
	}
	hits := int64(1)
	if s.skip(`,"hits":`) {
		if hits, ok = s.whole(); !ok {
			return line, false
		}
	}
	for i := range line.Request.Descriptors {
		line.Request.Descriptors[i].Hits, line.Request.Descriptors[i].Refund = hits, hits < 0
	}
	switch {
	case s.skip(`,"allowed":true`):
		line.Allowed, line.HasAllowed = true, true
	case s.skip(`,"allowed":false`):
		line.HasAllowed = true
	}
	if s.skip(`,"by":`) {
		var by string
		if by, ok = s.string(); !ok {
			return line, false
		}
		line.By = By(by)
	}
	if s.skip(`,"left_out":`) {
		n, ok := s.whole()
		if !ok {
			return line, false
		}
		line.LeftOut = int(n)
	}
	return line, s.skip("}") && s.at == len(s.text)
}

// skip skips a text. It reports false if another text follows.
func (s *scanner) skip(text string) bool {
	if !strings.HasPrefix(s.text[s.at:], text) {
		return false
	}
	s.at += len(text)
	return true
}

func (s *scanner) string() (string, bool) {
	if !s.skip(`"`) {
		return "", false
	}
	for from := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[from : s.at-1], true
		case c < ' ' || c == '\\' || c >= 0x80:
			return "", false
		}
	}
	return "", false
}

// whole reads a whole number of at most 18 digits.
func (s *scanner) whole() (n int64, ok bool) {
	negative := s.skip("-")
	from := s.at
	for s.at < len(s.text) && '0' <= s.text[s.at] && s.text[s.at] <= '9' {
		n = 10*n + int64(s.text[s.at]-'0')
		s.at++
		if s.at-from > 18 {
			return 0, false
		}
	}
	if s.at == from || s.text[from] == '0' && s.at-from > 1 {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func (s *scanner) time() (at time.Time, ok bool) {
	if strings.HasPrefix(s.text[s.at:], `"`) {
		text, ok := s.string()
		if !ok {
			return at, false
		}
		return timeOf(text)
	}
	micros, ok := s.whole()
	if !ok {
		return at, false
	}
	return inRange(time.UnixMicro(micros).UTC())
}

// descriptors reads descriptors up to the end of their list. It refuses numbers beyond the bounds of a request.
func (s *scanner) descriptors() (all []decide.Descriptor, ok bool) {
	all = make([]decide.Descriptor, 0, 2)
	for {
		if !s.skip("[") {
			return nil, false
		}
		entries := make([]descriptors.Entry, 0, 2)
		for !s.skip("]") {
			if len(entries) > 0 && !s.skip(",") || len(entries) == decide.MaxEntries {
				return nil, false
			}
			e, ok := s.pair()
			if !ok {
				return nil, false
			}
			entries = append(entries, e)
		}
		all = append(all, decide.Descriptor{Entries: entries})
		if s.skip("]") {
			return all, len(all) <= decide.MaxDescriptors
		}
		if !s.skip(",") {
			return nil, false
		}
	}
}

func (s *scanner) pair() (e descriptors.Entry, ok bool) {
	if !s.skip("[") {
		return e, false
	}
	if e.Key, ok = s.string(); !ok || e.Key == "" || !s.skip(",") {
		return e, false
	}
	e.Value, ok = s.string()
	return e, ok && s.skip("]")
}
