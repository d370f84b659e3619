package decide

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Result is the outcome of a request. The zero Result is ready for [Decider.Decide].
type Result struct {
	Domain         string             // the request's; empty if the request is invalid
	Rules          *descriptors.Rules // rules that decided; nil if the request is invalid or no rules are loaded
	DomainNotFound bool               // no rules have the domain, so nothing is limited
	Denied         bool               // the request is over a limit
	Shadowed       bool               // the request would be Denied without [Options.ShadowMode]
	// Decisions has one element for each descriptor, in request order. It is empty if the request is invalid.
	Decisions []Decision
	// StoreErr is the first error of the store, even if the request was decided without that verdict. It may contain keys, and so
	// data of users, and must only be logged.
	StoreErr  error
	Took      time.Duration // from the call of Decide until the store had answered
	StoreTook time.Duration // 0: no limit had to be charged
	// GivenUp counts the leases and reservations that Decide has ended because the request is denied or canceled. GiveUpErr is the
	// first error of these ends, for logs only; after an error, a lease may last until its TTL.
	GivenUp   int
	GiveUpErr error

	hits     []limiters.Hit
	groups   []limiters.Group   // slices of hits
	policies []limiters.OnError // of hits
	verdicts []limiters.Verdict
	key      []byte // scratch
	leases   bool   // a hit has a lease

	quotasFull bool // all descriptors in quota mode are denied, or there are none
	decided    time.Duration
}

// Denies reports whether d contributes to the denial of the request. In quota mode, it does so only if all other quotas are denied
// too.
func (r *Result) Denies(d *Decision) bool { return d.Outcome == Denied && (!d.Quota || r.quotasFull) }

// A Decision is the outcome of one descriptor.
type Decision struct {
	Domain   string
	Entries  []descriptors.Entry // without a last entry that only ends a lease
	Hits     int64               // > 0 charged, 0 peeked, < 0 refunded; with End the actual cost
	Rule     *descriptors.Rule   // nil: no rule matches
	Override bool                // the limit came with the request
	// Shadow marks a rule in shadow mode, whose denials leave the outcome Allowed.
	Shadow bool
	// Quota marks a rule in quota mode, which denies the request only if all others in quota mode are denied too.
	Quota bool

	// End marks a descriptor that ends a lease or settles a reservation. It denies nothing, and its Limits are only those with
	// leases.
	End bool

	// Limits are the limits of the descriptor, and Verdicts the store's verdicts on them in the same order.
	Limits   []descriptors.RateLimit
	Verdicts []limiters.Verdict

	Outcome Outcome
	Reason  Reason
	// Limit explains the outcome: of the denying limits the one with the longest wait, or else the one with the fewest remaining
	// hits. It is nil if no limit's state is known, see Reason.
	Limit *descriptors.RateLimit
	// Remaining is the number of further hits that fit under Limit.
	Remaining int64
	// Reset is the wait until denied hits fit. For allowed hits and [NeverFits], it is the time until the key has fully reset.
	Reset time.Duration

	first int // of the hits
}

// An Outcome is the result for a descriptor's hits.
type Outcome uint8

// The outcomes. A descriptor is Undecided if the store failed under on_store_error: error. The end of a lease is Allowed even then,
// because Envoy ignores the response and guard.EndQueue repeats the end.
const (
	Allowed Outcome = iota
	Denied
	Undecided
)

// A Reason explains an [Outcome].
type Reason uint8

// The reasons.
const (
	NoEntries     Reason = iota // Allowed: the descriptor is empty. Envoy sends one when it skipped all actions.
	UnknownDomain               // Allowed: no rules have the domain
	NoRule                      // Allowed: no rule matches
	Unlimited                   // Allowed: the rule says unlimited
	Replaced                    // Allowed: another descriptor's rule replaces this one by name
	WithinLimit                 // Allowed: the hits fit under every limit
	OverLimit                   // Denied, or Allowed in shadow mode: the hits fit under Limit after Reset
	TooManyLeases               // as OverLimit, but the hits fit: the key has [limiters.MaxLeases] open reservations
	NeverFits                   // as OverLimit, but Limit can never hold that many hits: waiting does not help
	StorePolicy                 // Allowed or Denied: the store failed and on_store_error decided
	StoreError                  // Undecided, or Allowed in shadow mode and at the end of a lease: the store failed
	BadLeaseID                  // Denied, or Allowed in shadow mode: the lease id is empty or too long; of an End: Allowed, nothing changes
	Released                    // Allowed: the lease or reservation has ended, or there was none
	Settled                     // Allowed: as Released, with the actual cost of a reservation
)

var reasonNames = [...]string{
	NoEntries: "no_entries", UnknownDomain: "unknown_domain", NoRule: "no_rule", Unlimited: "unlimited", Replaced: "replaced",
	WithinLimit: "within_limit", OverLimit: "over_limit", TooManyLeases: "too_many_leases", NeverFits: "never_fits", StorePolicy: "store_policy",
	StoreError: "store_error", BadLeaseID: "bad_lease_id", Released: "released", Settled: "settled",
}

// String returns the reason in snake_case.
func (r Reason) String() string { return reasonNames[r] }

// Reset clears r and keeps its memory.
func (r *Result) Reset() {
	r.clearDecisions()
	clear(r.hits)
	clear(r.groups)
	clear(r.verdicts)
	*r = Result{
		Decisions: r.Decisions, hits: r.hits[:0], groups: r.groups[:0], policies: r.policies[:0], verdicts: r.verdicts[:0], key: r.key[:0],
	}
}

func (r *Result) clearDecisions() {
	clear(r.Decisions)
	r.Decisions = r.Decisions[:0]
}

// Size returns the capacity of r in elements, so that pools can discard large Results.
func (r *Result) Size() int { return max(cap(r.Decisions), cap(r.hits)) }

func (r *Result) failAll(err error) {
	for i := range r.verdicts {
		r.verdicts[i] = limiters.Verdict{Err: err}
	}
}

// conclude sets the outcome of each descriptor from its verdicts. It reports whether a descriptor outside of shadow mode is
// undecided.
func (r *Result) conclude() (undecided bool) {
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if len(d.Limits) == 0 {
			continue
		}
		d.Verdicts = r.verdicts[d.first : d.first+len(d.Limits)]
		d.conclude()
		undecided = undecided || d.Outcome == Undecided
		if r.StoreErr == nil {
			r.StoreErr = d.storeErr(i)
		}
	}
	return undecided
}

func (d *Decision) storeErr(i int) error {
	for j := range d.Verdicts {
		if err := d.Verdicts[j].Err; err != nil {
			return fmt.Errorf("descriptors[%d]: %s: %w", i, d.RuleName(), err)
		}
	}
	return nil
}

// Key returns the key of descriptor i, see [descriptors.Key]; "" if it has no limits. The result may be retained.
func (r *Result) Key(i int) string {
	d := &r.Decisions[i]
	if len(d.Limits) == 0 || d.first >= len(r.hits) {
		return ""
	}
	return r.hits[d.first].Key
}

// Denying returns the index of the denying limit with the longest wait, even in shadow mode; -1 if none denies.
func (d *Decision) Denying() int {
	if len(d.Verdicts) == 0 {
		return -1
	}
	i := explaining(d.Verdicts)
	if rank(&d.Verdicts[i]) != rankDenied {
		return -1
	}
	return i
}

// LimitName returns the name of limit i, its index from 0 if it has none, or "override" if it came with the request.
func (d *Decision) LimitName(i int) string {
	switch {
	case d.Override:
		return "override"
	case d.Limits[i].Name != "":
		return d.Limits[i].Name
	}
	return strconv.Itoa(i)
}

// RuleName returns the name of the rule; "" without a rule.
func (d *Decision) RuleName() string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.Name
}

func (d *Decision) conclude() {
	i := explaining(d.Verdicts)
	v := &d.Verdicts[i]
	switch {
	case v.Err != nil:
		d.Reason = StoreError
		if !d.Shadow && !d.End {
			d.Outcome = Undecided
		}
		return
	case d.End:
		d.Reset = v.ResetAfter
	case v.Allowed:
		d.Reason, d.Reset = WithinLimit, v.ResetAfter
	case v.RetryAfter < 0:
		d.Reason, d.Reset = NeverFits, v.ResetAfter
	case v.TooManyLeases:
		d.Reason, d.Reset = TooManyLeases, v.RetryAfter
	default:
		d.Reason, d.Reset = OverLimit, v.RetryAfter
	}
	if !v.Allowed && !d.Shadow {
		d.Outcome = Denied
	}
	if v.By == limiters.ByPolicy { // usage and reset are unknown
		d.Reason, d.Reset = StorePolicy, 0
		return
	}
	d.Limit, d.Remaining = &d.Limits[i], v.Remaining
}

// explaining returns the index of the verdict that explains the outcome: the denial with the longest wait, else the first error,
// else the verdict with the fewest remaining hits. Of equal verdicts it is the first.
func explaining(verdicts []limiters.Verdict) int {
	best := 0
	for i := range verdicts {
		if explainsMore(&verdicts[i], &verdicts[best]) {
			best = i
		}
	}
	return best
}

func explainsMore(a, b *limiters.Verdict) bool {
	switch ra, rb := rank(a), rank(b); {
	case ra != rb:
		return ra > rb
	case ra == rankDenied:
		// Converted to unsigned, a negative RetryAfter (never) is the longest wait.
		return uint64(a.RetryAfter) > uint64(b.RetryAfter)
	default:
		return a.Remaining < b.Remaining
	}
}

const (
	rankByPolicy = iota // allowed; the remaining hits are unknown
	rankAllowed
	rankError
	rankDenied
)

func rank(v *limiters.Verdict) int {
	switch {
	case v.Err != nil:
		return rankError
	case v.Allowed && v.By == limiters.ByPolicy:
		return rankByPolicy
	case v.Allowed:
		return rankAllowed
	default:
		return rankDenied
	}
}
