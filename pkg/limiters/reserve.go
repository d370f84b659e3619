package limiters

import "time"

// A correction changes the charge of a reservation by delta, the actual cost minus the estimate.
type correction struct {
	chargedAt int64 // the result of hitAlgorithm.reserve
	delta     int64
}

// A ReserveSpec configures reservations; the zero value means none.
type ReserveSpec struct {
	TTL       time.Duration // the time until a reservation without an actual cost expires
	Unsettled string        // the effect on an expired estimate: [UnsettledCharge] or [UnsettledRelease]
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
		return specErrorf("a limit that reserves does not count denied hits").withRemedy("set 'count_denied: false', or remove 'reserve'")
	case l.peekOver:
		return specErrorf("a limit that reserves allows no request at its limit").withRemedy("remove 'peek: over' or 'reserve'")
	}
	l.ttl, l.refundsExpired = r.TTL.Microseconds(), r.Unsettled == UnsettledRelease
	return nil
}

// RefundableFor returns how long after its charge an estimate may still count, so that a store must
// remember it to refund it once it has expired; at least LeaseTTL. It is 0 if l does not refund
// expired estimates.
func (l *Limit) RefundableFor() time.Duration {
	if !l.refundsExpired {
		return 0
	}
	window := float64(l.spec.Window) * 16 / 15 // no day, week, month or year of a calendar is longer
	if l.Drains() {
		window *= 2 * float64(l.capacity) / float64(max(1, l.spec.Max)) // a settlement may fill a funnel to twice its capacity
	}
	return max(l.LeaseTTL(), time.Duration(window))
}
