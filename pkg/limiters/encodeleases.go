package limiters

import (
	"encoding/binary"
	"errors"
)

// leaseLen is the encoded length of a lease, in bytes.
const leaseLen = 16 + 3*8

var errLeases = errors.New("the leases of a state are invalid")

// HasLeases reports whether s has open leases, or ids that ended before they were opened.
func (s *State) HasLeases() bool { return !s.extraOrEmpty().leases.isEmpty() }

// AppendLeases appends the encoding of the leases of s to b.
func AppendLeases(b []byte, s *State) []byte {
	for _, set := range s.extraOrEmpty().leases.sets() {
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

// LeasesLen returns the number of bytes that AppendLeases appends.
func LeasesLen(s *State) int {
	return 2*4 + leaseLen*s.extraOrEmpty().leases.len()
}

// ReadLeases decodes leases at the start of b and returns the remaining bytes. It validates its
// input: for arbitrary bytes it returns an error, or leases that are safe for every function of
// this package.
func ReadLeases(b []byte) (leases Leases, rest []byte, err error) {
	for _, set := range leases.sets() {
		if len(b) < 4 {
			return Leases{}, nil, errLeases
		}
		count := binary.LittleEndian.Uint32(b)
		b = b[4:]
		if count > MaxLeases || len(b) < leaseLen*int(count) {
			return Leases{}, nil, errLeases
		}
		for range count {
			id, l := LeaseID(b), lease{}
			l.expires, l.n, l.chargedAt = int64From(b[16:]), int64From(b[24:]), int64From(b[32:])
			if id.IsZero() || !within(l.expires, maxTime) || !within(l.n, MaxHits) || !within(l.chargedAt, maxTime) {
				return Leases{}, nil, errLeases
			}
			set.set(id, l)
			b = b[leaseLen:]
		}
	}
	return leases, b, nil
}

func int64From(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }

func within(n, maximum int64) bool { return n >= 0 && n <= maximum }

// SetLeases replaces the leases of s.
func (s *State) SetLeases(leases Leases) {
	s.withExtraState().leases = leases
	s.removeEmptyExtraState()
}
