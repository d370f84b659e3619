package limiters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// entryLen is the length of a log's entry as AppendState writes it, and baseLen of what stands before the first.
const entryLen, baseLen = 12, 4

// mostTime bounds a time and a count in an encoded state: exact in a double, and far from any overflow.
const mostTime = 1 << 53

// AppendState appends s, a state under l, to b: its words, and its log if it has one. It is what [ReadState] reads.
func AppendState(b []byte, l *Limit, s *State) []byte {
	words := [...]int64{s.A, s.B, s.C}
	for _, w := range words[:l.Words()] {
		b = binary.LittleEndian.AppendUint64(b, uint64(w))
	}
	if s.Log == nil {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, s.Log.base)
	b = slices.Grow(b, entryLen*s.Log.entries.len())
	for chunk := range s.Log.entries.all() {
		for _, e := range chunk {
			at := len(b)
			b = b[:at+entryLen]
			binary.LittleEndian.PutUint64(b[at:], uint64(e.at))
			binary.LittleEndian.PutUint32(b[at+8:], e.sum)
		}
	}
	return b
}

// StateLen is how many bytes AppendState appends.
func StateLen(l *Limit, s *State) int {
	n := 8 * l.Words()
	if s.Log != nil {
		n += baseLen + entryLen*s.Log.entries.len()
	}
	return n
}

// ReadState reads a state under l. The error tells of bytes that AppendState never writes: whatever they are, a state
// that is read without an error can be decided on.
func ReadState(l *Limit, b []byte) (State, error) {
	n := l.Words()
	if len(b) < 8*n || len(b) > 8*n && !l.Grows() {
		return State{}, fmt.Errorf("a state of %d bytes, where %d words are wanted", len(b), n)
	}
	var words [3]int64
	for i := range n {
		words[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	s := State{A: words[0], B: words[1], C: words[2]}
	if s.A < 0 || s.A > mostTime || s.B < 0 || s.B > mostTime {
		return State{}, errors.New("a state with a time or a count out of range")
	}
	if b = b[8*n:]; len(b) == 0 {
		return s, nil
	}
	var err error
	s.Log, err = readLog(b)
	return s, err
}

// readLog holds a log to what every search in one relies on: times and counts that ascend.
func readLog(b []byte) (*Log, error) {
	if len(b) < baseLen+entryLen || (len(b)-baseLen)%entryLen != 0 {
		return nil, fmt.Errorf("a log of %d bytes", len(b))
	}
	log := &Log{base: binary.LittleEndian.Uint32(b)}
	var last entry
	for b = b[baseLen:]; len(b) > 0; b = b[entryLen:] {
		e := entry{int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:])}
		held := e.sum - log.base
		if e.at <= last.at || e.at > mostTime || held <= last.sum || held > 2*LogMax {
			return nil, errors.New("a log whose times or counts do not ascend")
		}
		last = entry{e.at, held}
		log.entries.push(e)
	}
	return log, nil
}
