package limiters

import "time"

// A correction changes the charge of a reservation by delta, the actual cost minus the estimate.
type correction struct {
	chargedAt int64 // the result of algorithm.reserve
	delta     int64
}

// A ReserveSpec configures reservations; the zero value means none.
type ReserveSpec struct {
	TTL       time.Duration // the time until a reservation without an actual cost expires
	Unsettled string        // what becomes of an expired estimate: [UnsettledCharge] or [UnsettledRelease]
}

// The values of ReserveSpec.Unsettled.
const (
	UnsettledCharge  = "charge"  // an expired estimate stays charged; the default
	UnsettledRelease = "release" // an expired estimate is refunded
)

var reserveParameters = []Parameter{
	{Key: "reserve", Type: Object, About: "charge an estimate, and correct it to the actual cost at the end of the request."},
	{Key: "reserve.ttl", Type: Duration, Min: minTTLMicros, Max: maxTTLMicros, Required: true,
		number: func(p *Params) *int64 { return (*int64)(&p.Reserve.TTL) },
		About:  "the time that a reservation waits for its actual cost. It must be longer than any request."},
	{Key: "reserve.unsettled", Type: Choice, Choices: []string{UnsettledCharge, UnsettledRelease}, Default: UnsettledCharge,
		text:  func(p *Params) *string { return &p.Reserve.Unsettled },
		About: "whether an expired estimate stays charged (charge) or is refunded (release)."},
}

func (l *Limit) setReserve(r ReserveSpec) error {
	switch {
	case r == ReserveSpec{}:
		return nil
	case l.spec.CountDenied:
		return &SpecError{
			Problem: "a limit that reserves does not count denied hits",
			Remedy:  "set 'count_denied: false', or remove 'reserve'",
		}
	case l.peekOver:
		return &SpecError{
			Problem: "a limit that reserves allows no request at its limit",
			Remedy:  "remove 'peek: over' or 'reserve'",
		}
	}
	l.leases, l.ttl, l.refundsExpired = reservations, r.TTL.Microseconds(), r.Unsettled == UnsettledRelease
	return nil
}

// RefundsExpired reports whether l reserves, and refunds the estimates of expired reservations.
func (l *Limit) RefundsExpired() bool { return l.refundsExpired }
