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

// maxNumber bounds times and counts in an encoded state. It is exact in a double and cannot
// overflow.
const maxNumber = 1 << 53

// leaseLen and penaltyLen are the encoded lengths of a lease and of a penalty, in bytes.
const leaseLen, penaltyLen = 16 + 3*8, 4 * 8

var errInvalidLeases = errors.New("the leases of a state are invalid")

// PutWords writes the words of s to b, which has 8 bytes for each of [Limit.StateWords].
func (s *State) PutWords(b []byte) {
	for i := range s.words[:len(b)/8] {
		binary.LittleEndian.PutUint64(b[8*i:], uint64(s.words[i]))
	}
}

// SetWords sets the words of s to those that PutWords wrote.
func (s *State) SetWords(b []byte) {
	for i := range s.words[:len(b)/8] {
		s.words[i] = int64From(b[8*i:])
	}
}

// HasLeases reports whether s has open leases, or ids that ended before they were opened.
func (s *State) HasLeases() bool { return !s.extraOrEmpty().leases.isEmpty() }

// AppendState appends the encoding of s, a state under l, to b: its leases, if any, its words, its
// penalty if l has penalties, and its log, if any.
func AppendState(b []byte, l *Limit, s *State) []byte {
	if s.HasLeases() {
		b = s.Extra.leases.append(b)
	}
	start := len(b)
	b = append(b, make([]byte, 8*l.StateWords())...)
	s.PutWords(b[start:])
	if l.HasPenalty() {
		p := &s.extraOrEmpty().penalty
		for _, n := range [...]int64{p.offenses, p.since, p.until, p.begun} {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	if s.Log == nil {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, s.Log.base)
	b = slices.Grow(b, entryLen*s.Log.entries.len())
	for i := range s.Log.entries.len() {
		e := s.Log.entries.get(i)
		b = binary.LittleEndian.AppendUint64(b, uint64(e.time))
		b = binary.LittleEndian.AppendUint32(b, e.sum)
	}
	return b
}

func (ls *keyLeases) append(b []byte) []byte {
	for _, set := range ls.sets() {
		b = binary.LittleEndian.AppendUint32(b, uint32(set.len()))
		for _, e := range set.order {
			l := set.byID[e.id]
			b = append(b, e.id[:]...)
			for _, n := range [...]int64{l.expires, l.n, l.chargedAt} {
				b = binary.LittleEndian.AppendUint64(b, uint64(n))
			}
		}
	}
	return b
}

// StateLen returns the number of bytes that AppendState appends.
func StateLen(l *Limit, s *State) int {
	n := baseStateLen(l)
	if s.HasLeases() {
		n += 2*4 + leaseLen*s.Extra.leases.len()
	}
	if s.Log != nil {
		n += baseLen + entryLen*s.Log.entries.len()
	}
	return n
}

// baseStateLen returns the length of a state under l without leases and a log.
func baseStateLen(l *Limit) int {
	if l.HasPenalty() {
		return 8*l.StateWords() + penaltyLen
	}
	return 8 * l.StateWords()
}

// ReadState decodes a state under l, which begins with leases if it had any. It validates its
// input: for arbitrary bytes it returns an error, or a state that is safe for every function of
// this package.
func ReadState(l *Limit, b []byte, hasLeases bool) (s State, err error) {
	if hasLeases {
		leases := &s.ensureExtraState().leases
		if b, err = leases.read(b); err != nil {
			return State{}, err
		}
		if l.IsConcurrency() && !leases.haveValidSlots() {
			return State{}, errInvalidLeases
		}
		s.removeEmptyExtraState()
	}
	n := 8 * l.StateWords()
	if minimum := baseStateLen(l); len(b) < minimum || len(b) > minimum && !l.definition.hasLog {
		return State{}, fmt.Errorf("a state has %d bytes: want %d", len(b), minimum)
	}
	s.SetWords(b[:n])
	if !inRange(s.words[0], maxNumber) || !inRange(s.words[1], maxNumber) {
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
			s.ensureExtraState().penalty = p
		}
	}
	if len(b) == 0 {
		return s, nil
	}
	s.Log, err = readLog(b)
	return s, err
}

// read decodes leases at the start of b into ls, which must be empty. It returns the remaining
// bytes.
func (ls *keyLeases) read(b []byte) (rest []byte, err error) {
	for _, set := range ls.sets() {
		if len(b) < 4 {
			return nil, errInvalidLeases
		}
		count := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if count > MaxLeases || len(b) < leaseLen*int(count) {
			return nil, errInvalidLeases
		}
		for range count {
			id, l := LeaseID(b), lease{}
			l.expires, l.n, l.chargedAt = int64From(b[16:]), int64From(b[24:]), int64From(b[32:])
			if id.IsZero() || !inRange(l.expires, maxNumber) || !inRange(l.n, MaxHits) || !inRange(l.chargedAt, maxNumber) {
				return nil, errInvalidLeases
			}
			set.set(id, l)
			b = b[leaseLen:]
		}
	}
	return b, nil
}

// haveValidSlots reports whether each open lease holds no more slots than a concurrency limit may
// have.
func (ls *keyLeases) haveValidSlots() bool {
	for _, held := range ls.open.byID {
		if held.n > MaxLeases {
			return false
		}
	}
	return true
}

func readPenalty(b []byte) (penaltyState, error) {
	var n [4]int64
	for i := range n {
		n[i] = int64From(b[8*i:])
		if !inRange(n[i], maxNumber) {
			return penaltyState{}, errors.New("a time or a count of a penalty is out of range")
		}
	}
	return penaltyState{offenses: n[0], since: n[1], until: n[2], begun: n[3]}, nil
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
		if e.time <= last.time || e.time > maxNumber || logged <= last.sum || logged > 2*MaxLogLimit {
			return nil, errors.New("the times or counts of a log do not ascend")
		}
		last = entry{e.time, logged}
		log.entries.push(e)
	}
	return log, nil
}

func int64From(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }

func inRange(n, maximum int64) bool { return n >= 0 && n <= maximum }
