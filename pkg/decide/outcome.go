package decide

import (
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// An Outcome classifies the hits of a descriptor as allowed, denied or undecided.
type Outcome uint8

// The outcomes. A descriptor is Undecided before the decision, and if the store failed under
// on_store_error: error. The end of a lease is Allowed even then, because Envoy ignores the
// response and guard.EndRetrier retries the end.
const (
	Undecided Outcome = iota
	Allowed
	Denied
)

// A Reason explains an [Outcome].
type Reason uint8

// The reasons, with the outcome. In shadow mode and at the end of a lease, the outcome is always
// Allowed.
const (
	NoEntries     Reason = iota // Allowed: the descriptor is empty. Envoy sends one when it skipped all actions.
	UnknownDomain               // Allowed: no rules have the domain
	NoRule                      // Allowed: no rule matches
	Unlimited                   // Allowed: the rule is unlimited
	Replaced                    // Allowed: another descriptor's rule replaces this one by name
	WithinLimit                 // Allowed: the hits fit under every limit
	OverLimit                   // Denied: the hits fit under the deciding limit after a wait
	NeverFits                   // Denied: the deciding limit can never hold that many hits, so waiting does not help
	TooManyLeases               // Denied: the hits fit, but the key has [limiters.MaxLeases] open reservations
	StorePolicy                 // Allowed or Denied: the store failed and on_store_error decided
	StoreError                  // Undecided: the store failed
	BadLeaseID                  // Denied: the lease id is empty or too long
	Released                    // Allowed: the lease has ended, or there was none
	Settled                     // Allowed: the reservation has ended with its actual cost, or there was none
)

var reasonNames = [...]string{
	NoEntries: "no_entries", UnknownDomain: "unknown_domain", NoRule: "no_rule", Unlimited: "unlimited", Replaced: "replaced",
	WithinLimit: "within_limit", OverLimit: "over_limit", NeverFits: "never_fits", TooManyLeases: "too_many_leases",
	StorePolicy: "store_policy", StoreError: "store_error", BadLeaseID: "bad_lease_id", Released: "released", Settled: "settled",
}

// PenaltyText names a denial by a penalty in receipts and responses. Elsewhere the Reason of such
// a denial is OverLimit, and its verdict is Penalized.
const PenaltyText = "penalty"

// ReasonNames returns all reasons in snake_case.
func ReasonNames() []string { return slices.Clone(reasonNames[:]) }

// String returns the reason in snake_case.
func (r Reason) String() string { return reasonNames[r] }

// classify sets the outcome of d and explains it, from the verdicts on its limits. Without
// limits, the plan decides.
func (d *Decision) classify() {
	outcome, reason := Allowed, d.PlannedReason
	switch {
	case len(d.Verdicts) > 0:
		d.DecidingLimitIndex = decidingLimitIndex(d.Verdicts)
		outcome, reason = classifyVerdict(&d.Verdicts[d.DecidingLimitIndex], d.PlannedReason)
	case d.hasBadLeaseID():
		outcome = Denied
	}
	if d.ShadowMode || d.EndsLease() {
		outcome = Allowed
	}
	d.Outcome, d.Reason = outcome, reason
}

// classifyVerdict returns the outcome of a descriptor without its shadow mode. v is the verdict of
// its deciding limit, and planned the reason if that limit allows the hits.
func classifyVerdict(v *limiters.Verdict, planned Reason) (Outcome, Reason) {
	switch {
	case v.Err != nil:
		return Undecided, StoreError
	case v.By == limiters.ByPolicy && v.Allowed:
		return Allowed, StorePolicy
	case v.By == limiters.ByPolicy:
		return Denied, StorePolicy
	case v.Allowed:
		return Allowed, planned
	case v.NeverFits():
		return Denied, NeverFits
	case v.TooManyLeases:
		return Denied, TooManyLeases
	default:
		return Denied, OverLimit
	}
}

// CombinedOutcome is the outcome of descriptors together. The zero value combines no descriptors.
type CombinedOutcome struct {
	nonQuotas, quotas outcomeSet // the outcomes of the descriptors outside of quota mode, and of those in it
}

// An outcomeSet marks the outcomes that occur.
type outcomeSet [Denied + 1]bool

// Add adds the outcome of d.
func (c *CombinedOutcome) Add(d *Decision) {
	if d.QuotaMode {
		c.quotas[d.Outcome] = true
	} else {
		c.nonQuotas[d.Outcome] = true
	}
}

// Denied reports whether the descriptors deny a request, apart from [Options.ShadowMode]. Quotas
// deny it only together.
func (c *CombinedOutcome) Denied() bool {
	return c.nonQuotas[Denied] || c.quotasDeny()
}

func (c *CombinedOutcome) quotasDeny() bool { return c.quotas == outcomeSet{Denied: true} }

// Undecided reports whether the outcome of the request depends on a descriptor that is Undecided.
func (c *CombinedOutcome) Undecided() bool {
	return !c.Denied() && (c.nonQuotas[Undecided] || c.quotas[Undecided] && !c.quotas[Allowed])
}

// decidingLimitIndex returns [Decision.DecidingLimitIndex] from the verdicts on the limits.
func decidingLimitIndex(verdicts []limiters.Verdict) int {
	best := 0
	for i := range verdicts {
		if outranks(&verdicts[i], &verdicts[best]) {
			best = i
		}
	}
	return best
}

func outranks(a, b *limiters.Verdict) bool {
	switch pa, pb := precedence(a), precedence(b); {
	case pa != pb:
		return pa > pb
	case pa == precedenceDenied:
		return a.ComparableWait() > b.ComparableWait()
	default:
		return a.Remaining < b.Remaining
	}
}

const (
	precedenceByPolicy = iota // allowed; the remaining hits are unknown
	precedenceAllowed
	precedenceError
	precedenceDenied
)

func precedence(v *limiters.Verdict) int {
	switch {
	case v.Err != nil:
		return precedenceError
	case v.Allowed && v.By == limiters.ByPolicy:
		return precedenceByPolicy
	case v.Allowed:
		return precedenceAllowed
	default:
		return precedenceDenied
	}
}
