package limiters

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// entryLen and baseLen are the encoded lengths of a log's entry and of the head before the entries,
// in bytes.
const entryLen, baseLen = 12, 4

// maxTime bounds times and counts in an encoded state. It is exact in a double and cannot overflow.
const maxTime = 1 << 53

// penaltyLen is the encoded length of a penalty, in bytes.
const penaltyLen = 4 * 8

// PutWords writes the words of s to b, which has 8 bytes for each of [Limit.StateWords].
func (s *State) PutWords(b []byte) {
	if len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, uint64(s.a))
	}
	if len(b) >= 16 {
		binary.LittleEndian.PutUint64(b[8:], uint64(s.b))
	}
	if len(b) >= 24 {
		binary.LittleEndian.PutUint64(b[16:], uint64(s.c))
	}
}

// SetWords sets the words of s to those that PutWords wrote.
func (s *State) SetWords(b []byte) {
	if len(b) >= 8 {
		s.a = int64From(b)
	}
	if len(b) >= 16 {
		s.b = int64From(b[8:])
	}
	if len(b) >= 24 {
		s.c = int64From(b[16:])
	}
}

// AppendState appends the encoding of s, a state under l, to b: its words, its penalty if l has
// penalties, and its log, if any.
func AppendState(b []byte, l *Limit, s *State) []byte {
	start := len(b)
	b = append(b, make([]byte, 8*l.StateWords())...)
	s.PutWords(b[start:])
	if l.HasPenalty() {
		p := &s.extraOrEmpty().penalty
		for _, n := range [...]int64{p.Offences, p.Since, p.Until, p.Level} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	if s.Log == nil {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, s.Log.base)
	b = slices.Grow(b, entryLen*s.Log.entries.len())
	for chunk := range s.Log.entries.all() {
		for _, e := range chunk {
			start := len(b)
			b = b[:start+entryLen]
			binary.LittleEndian.PutUint64(b[start:], uint64(e.time))
			binary.LittleEndian.PutUint32(b[start+8:], e.sum)
		}
	}
	return b
}

// StateLen returns the number of bytes that AppendState appends.
func StateLen(l *Limit, s *State) int {
	n := baseStateLen(l)
	if s.Log != nil {
		n += baseLen + entryLen*s.Log.entries.len()
	}
	return n
}

// baseStateLen returns the length of a state under l without a log.
func baseStateLen(l *Limit) int {
	if l.HasPenalty() {
		return 8*l.StateWords() + penaltyLen
	}
	return 8 * l.StateWords()
}

// ReadState decodes a state under l. It validates its input: for arbitrary bytes it returns an
// error, or a state that is safe for every function of this package.
func ReadState(l *Limit, b []byte) (State, error) {
	n := 8 * l.StateWords()
	if minimum := baseStateLen(l); len(b) < minimum || len(b) > minimum && !l.definition.grows {
		return State{}, fmt.Errorf("a state has %d bytes: want %d", len(b), minimum)
	}
	var s State
	s.SetWords(b[:n])
	if !within(s.a, maxTime) || !within(s.b, maxTime) {
		return State{}, errors.New("a time or a count of a state is out of range")
	}
	b = b[n:]
	if l.HasPenalty() {
		p, err := readPenalty(b)
		if err != nil {
			return State{}, err
		}
		b = b[penaltyLen:]
		if p != (penaltyState{}) {
			s.Extra = &ExtraState{penalty: p}
		}
	}
	if len(b) == 0 {
		return s, nil
	}
	var err error
	s.Log, err = readLog(b)
	return s, err
}

func readPenalty(b []byte) (penaltyState, error) {
	var n [4]int64
	for i := range n {
		n[i] = int64From(b[8*i:])
		if !within(n[i], maxTime) {
			return penaltyState{}, errors.New("a time or a count of a penalty is out of range")
		}
	}
	return penaltyState{Offences: n[0], Since: n[1], Until: n[2], Level: n[3]}, nil
}

// readLog decodes a log and checks that times and counts ascend, which searches rely on.
func readLog(b []byte) (*Log, error) {
	if len(b) < baseLen+entryLen || (len(b)-baseLen)%entryLen != 0 {
		return nil, fmt.Errorf("a log has %d bytes: want whole entries", len(b))
	}
	log := &Log{base: binary.LittleEndian.Uint32(b)}
	var last entry
	for b = b[baseLen:]; len(b) > 0; b = b[entryLen:] {
		e := entry{int64From(b), binary.LittleEndian.Uint32(b[8:])}
		logged := e.sum - log.base
		if e.time <= last.time || e.time > maxTime || logged <= last.sum || logged > 2*LargestLogMax {
			return nil, errors.New("the times or counts of a log do not ascend")
		}
		last = entry{e.time, logged}
		log.entries.push(e)
	}
	return log, nil
}
