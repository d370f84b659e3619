package limiters

import (
	"cmp"
	"maps"
	"slices"
	"time"
	"unsafe"
)

// MaxLeases bounds the open leases of a key, and the unknown ids whose ends the key remembers.
// Further reservations are denied, see [Verdict].TooManyLeases. It is also the maximum of a
// concurrency limit.
const MaxLeases = 10_000

// LeasesPerOp bounds the work of one operation: the expiries shortened, the expired leases removed,
// and the ended ids forgotten.
const LeasesPerOp = 1000

// EndedTTL is how long a key remembers the end of an unknown id. The charge that opens its lease
// may still be in flight.
const EndedTTL = 5 * time.Second

// MaxLeaseWait bounds the retry-after of a denial because too many leases are open. A lease may end
// long before it expires.
const MaxLeaseWait = time.Second

// A LeaseID identifies a request under a limit with leases. The zero value means none.
type LeaseID [16]byte

// leaseIDPrefix separates the sums of ids from the other sums under the same secret, because a
// client may choose an id. Keys begin with a digit or "#", and the purposes of derived keys with
// "weir ".
const leaseIDPrefix = "lease "

// NewLeaseID returns the first 16 bytes of the [SecretSum] of "lease " and id. It is never zero.
func NewLeaseID(secret []byte, id string) LeaseID {
	sum := SecretSum(secret, leaseIDPrefix+id)
	l := LeaseID(sum[:])
	if l.IsZero() {
		l[0] = 1
	}
	return l
}

// IsZero reports whether l names no lease.
func (l LeaseID) IsZero() bool { return l == LeaseID{} }

// keyLeases are the open leases of a key, and the ids that ended before they were opened. The zero
// value is empty.
type keyLeases struct {
	open, ended leaseSet
}

// A lease belongs to one request: it has slots of a concurrency limit or, as a reservation, an
// estimate of the cost. If it ended before it was opened, n is the actual cost.
type lease struct {
	expires   int64 // µs since 1970: it has expired at this time
	n         int64 // slots, or the estimate
	chargedAt int64 // of a reservation: the result of hitAlgorithm.reserve
}

func (ls *keyLeases) sets() [2]*leaseSet { return [...]*leaseSet{&ls.open, &ls.ended} }

func (ls *keyLeases) len() int { return ls.open.len() + ls.ended.len() }

func (ls *keyLeases) isEmpty() bool { return ls.len() == 0 }

// latest returns the latest expiry in ls, in µs since 1970.
func (ls *keyLeases) latest() int64 { return max(ls.open.latest(), ls.ended.latest()) }

func (ls *keyLeases) size() int { return ls.open.size() + ls.ended.size() }

// A leaseSet indexes leases by id and by expiry.
type leaseSet struct {
	byID  map[LeaseID]lease
	order []expiry // sorted by expiry, then by id
	// sum is the total n of all leases. Under concurrency it is the number of held slots. For
	// reservations nothing reads it, so it may overflow.
	sum  int64
	peak int // the largest number of leases since the set was empty or shrunk
}

type expiry struct {
	time int64
	id   LeaseID
}

func (e expiry) compare(other expiry) int {
	if c := cmp.Compare(e.time, other.time); c != 0 {
		return c
	}
	return slices.Compare(e.id[:], other.id[:])
}

func (s *leaseSet) len() int { return len(s.byID) }

// set adds or replaces the lease of an id.
func (s *leaseSet) set(id LeaseID, l lease) {
	s.remove(id)
	if s.byID == nil {
		s.byID = make(map[LeaseID]lease)
	}
	s.byID[id] = l
	s.sum += l.n
	s.peak = max(s.peak, len(s.byID))
	e := expiry{l.expires, id}
	s.order = slices.Insert(s.order, s.indexOf(e), e)
}

// indexOf returns the index of e in order, or where it belongs.
func (s *leaseSet) indexOf(e expiry) int {
	i, _ := slices.BinarySearchFunc(s.order, e, expiry.compare)
	return i
}

// remove removes and returns the lease of an id.
func (s *leaseSet) remove(id LeaseID) (lease, bool) {
	l, found := s.byID[id]
	if !found {
		return l, false
	}
	delete(s.byID, id)
	s.sum -= l.n
	if len(s.byID) == 0 {
		*s = leaseSet{}
		return l, true
	}
	if i := s.indexOf(expiry{l.expires, id}); i == 0 {
		s.order = s.order[1:] // an operation removes up to LeasesPerOp expired leases, which must not move the others
	} else {
		s.order = slices.Delete(s.order, i, i+1)
	}
	if s.peak > 4*len(s.byID)+shrinkFrom {
		s.shrink()
	}
	return l, true
}

// shrinkFrom keeps small sets from being shrunk at every removal.
const shrinkFrom = 32

// shrink frees excess memory. Its cost is amortized over the removals since the last time.
func (s *leaseSet) shrink() {
	byID := make(map[LeaseID]lease, len(s.byID))
	maps.Copy(byID, s.byID)
	s.order, s.byID, s.peak = slices.Clone(s.order), byID, len(byID)
}

// popExpired removes and returns the earliest lease if it has expired at now.
func (s *leaseSet) popExpired(now int64) (lease, bool) {
	if len(s.order) == 0 || s.order[0].time > now {
		return lease{}, false
	}
	return s.remove(s.order[0].id)
}

// shorten shortens later expiries to latest, for at most maximum leases, the earliest first.
func (s *leaseSet) shorten(latest int64, maximum int) {
	if s.latest() <= latest {
		return
	}
	equal, _ := slices.BinarySearchFunc(s.order, expiry{time: latest}, expiry.compare)
	from, _ := slices.BinarySearchFunc(s.order, expiry{time: latest + 1}, expiry.compare)
	to := min(from+maximum, len(s.order))
	for i := range s.order[from:to] {
		e := &s.order[from+i]
		l := s.byID[e.id]
		l.expires, e.time = latest, latest
		s.byID[e.id] = l
	}
	slices.SortFunc(s.order[equal:to], expiry.compare) // all expire at latest, so the order is by id
}

// earliest returns when the first of s expires, in µs since 1970. It may have expired already. It
// is 0 if s is empty.
func (s *leaseSet) earliest() int64 {
	if len(s.order) == 0 {
		return 0
	}
	return s.order[0].time
}

func (s *leaseSet) latest() int64 {
	if len(s.order) == 0 {
		return 0
	}
	return s.order[len(s.order)-1].time
}

// leaseBytes approximates the memory of a lease in byID, including free slots of the map, in bytes.
const leaseBytes = 2 * int(unsafe.Sizeof(lease{})+unsafe.Sizeof(LeaseID{}))

// size approximates the memory of the set, in bytes.
func (s *leaseSet) size() int {
	return cap(s.order)*int(unsafe.Sizeof(expiry{})) + s.peak*leaseBytes
}
