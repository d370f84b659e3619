package limiters

import (
	"errors"
	"time"
)

// A reserver is an algorithm that supports reservations: a charge of an estimate, which settle corrects to the actual cost.
type reserver interface {
	// reserve charges an estimate of n >= 0 hits that fit. It returns the new state and the time by which settle finds the charge.
	reserve(s core, now, n int64) (core, int64)
	// settle applies corrections in order, to charges that still count.
	settle(s core, now int64, corrections []correction) core
}

// A correction changes the charge of a reservation by delta, the actual cost minus the estimate.
type correction struct {
	at    int64 // what reserve returned
	delta int64
}

// A ReserveSpec configures reservations; the zero value means none.
type ReserveSpec struct {
	TTL       time.Duration // until a reservation without an actual cost expires
	Unsettled string        // whether an expired estimate stays charged ("charge", the default) or is refunded ("release")
}

// reserveParameters are the parameters of reservations.
var reserveParameters = []Parameter{
	{Key: "reserve", Type: Object, About: "charge an estimate, and correct it to the actual cost at the end of the request."},
	{Key: "reserve.ttl", Type: Duration, Min: minTTL, Max: maxTTL, Required: true,
		number: func(p *Params) *int64 { return (*int64)(&p.Reserve.TTL) },
		About:  "how long a reservation waits for its actual cost. It must be longer than any request."},
	{Key: "reserve.unsettled", Type: Choice, Choices: []string{"charge", "release"},
		text:  func(p *Params) *string { return &p.Reserve.Unsettled },
		About: "what becomes of an estimate that was not corrected in time. Default: charge."},
}

// ReserveNumbers returns the reservations' arguments of the Lua twin: the TTL in µs, and 1 if expired reservations are settled to
// 0. It returns nil if l does not reserve.
func (l *Limit) ReserveNumbers() []int64 {
	if l.reserver == nil {
		return nil
	}
	return []int64{l.ttl, flag(l.releases)}
}

func (l *Limit) setReserve(r ReserveSpec) error {
	switch {
	case r == ReserveSpec{}:
		return nil
	case l.spec.CountDenied:
		return errors.New("a limit that reserves does not count denied hits: set count_denied: false, or remove reserve")
	case l.peekOver:
		return errors.New("a limit that reserves allows no request at its limit: remove peek: over, or reserve")
	}
	l.reserver = l.counter.(reserver)
	l.hasLeases = true
	l.ttl, l.releases = r.TTL.Microseconds(), r.Unsettled == "release"
	return nil
}
