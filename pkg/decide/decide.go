// Package decide decides rate limit requests. It takes a domain, descriptors and hits, and returns one [Decision] per descriptor.
//
// The package knows no protocol. Envoy's RateLimitService (package rls) and everything else that needs a decision call
// [Decider.Decide] with plain Go values:
//
//	decider := decide.New(rules, store, decide.Options{})
//	request := decide.Request{Domain: "ugc", Descriptors: []decide.Descriptor{
//		{Entries: []descriptors.Entry{{Key: "user_id", Value: "alice"}}, Hits: 1},
//	}}
//	var result decide.Result
//	err := decider.Decide(ctx, &request, &result)
//
// A decision has four steps: validate the request, match each descriptor to its limits, charge all limits in one call of
// the store, and combine the verdicts. Only the store does I/O.
package decide

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Decider decides requests by the rules in force and a store. It is safe for concurrent use.
type Decider struct {
	rules     func() *descriptors.Rules
	store     Fallback
	options   Options
	overrides overrideCache
}

// Options configures a [Decider]. The zero value is the default configuration.
type Options struct {
	// ShadowMode allows every request. Decisions still report denials.
	ShadowMode bool
	// QuotaMode treats all descriptors, even without a rule, as if their rules were in quota mode.
	QuotaMode bool
	// AllOrNothing charges no limit of a request if one of them denies it. Rules in shadow mode are excluded, because they deny
	// nothing, and so are rules in quota mode if the request has more than one.
	AllOrNothing bool
	// LeaseSecret is the secret of [limiters.NewLeaseID]. All processes that share a store need the same secret.
	LeaseSecret []byte
	// GiveUpTimeout bounds the store call that ends the leases of a denied or canceled request; default 1 s.
	GiveUpTimeout time.Duration
	// CalendarMonths makes month a calendar month in UTC for limits in requests, unless the rule sets window_start.
	CalendarMonths bool
}

// A Fallback decides hits by a store, or by policies if the store cannot. See guard.Fallback.
type Fallback interface {
	// Take is Take of [limiters.Store] with the on_store_error policy of each hit.
	Take(ctx context.Context, now time.Time, groups []limiters.Group, policies []limiters.OnError, out []limiters.Verdict) error
}

// New returns a Decider without a fallback: hits that the store cannot decide fail, whatever their policies. It calls rules once for
// each request; nil rules mean that none are loaded yet.
func New(rules func() *descriptors.Rules, store limiters.Store, o Options) *Decider {
	return NewWithFallback(rules, noFallback{store}, o)
}

// NewWithFallback is [New] with a fallback.
func NewWithFallback(rules func() *descriptors.Rules, f Fallback, o Options) *Decider {
	return &Decider{rules: rules, store: f, options: o}
}

type noFallback struct{ store limiters.Store }

func (f noFallback) Take(
	ctx context.Context, now time.Time, groups []limiters.Group, _ []limiters.OnError, out []limiters.Verdict,
) error {
	return f.store.Take(ctx, now, groups, out)
}

// Decide decides r and writes the outcome to result, which it resets first.
//
// The caller may reuse both values, and a reused Result costs no allocation. Result refers to the Request and to its own reusable
// memory, so copy what must outlive the next call.
//
// If the request is denied or ctx ends, Decide ends the leases that the request may have taken, in a store call that is independent
// of ctx, before it returns.
//
// A non-nil error is an [*Error], and means that the request is undecided. Result is then only for metrics and logs.
func (d *Decider) Decide(ctx context.Context, r *Request, result *Result) error {
	start := now()
	result.Reset()
	err := d.decide(ctx, r, result)
	if result.decided == 0 {
		result.decided = now()
	}
	result.Took = result.decided - start
	return err
}

// Plan is the part of Decide before the store call: it validates r and matches each descriptor to its limits. Decisions have no
// Verdicts. Its error is that of Decide for an invalid request or missing rules.
func (d *Decider) Plan(r *Request, result *Result) error {
	result.Reset()
	return d.prepare(r, result)
}

func (d *Decider) prepare(r *Request, result *Result) error {
	if err := r.validate(); err != nil {
		return err
	}
	result.Domain = r.Domain
	rules := d.rules()
	if rules == nil {
		return &Error{Kind: NoRules, text: "no rate limit configuration loaded"}
	}
	result.Rules = rules
	if err := d.plan(rules, r, result); err != nil {
		result.clearDecisions()
		return err
	}
	return nil
}

func (d *Decider) decide(ctx context.Context, r *Request, result *Result) error {
	if err := d.prepare(r, result); err != nil {
		return err
	}
	why := "the store could not decide every descriptor"
	if len(result.hits) > 0 {
		start := now()
		err := d.store.Take(ctx, r.Now, result.groups, result.policies, result.verdicts)
		result.decided = now()
		result.StoreTook = result.decided - start
		if err != nil {
			result.failAll(err)
			why = "the store did not answer"
		}
	}
	undecided := result.conclude()
	d.overall(result)
	d.giveUp(ctx, r.Now, result)
	if undecided && !result.Denied && !d.options.ShadowMode {
		return storeError(ctx, why, result.StoreErr)
	}
	return nil
}

// overall decides the request: it is denied if any descriptor outside of quota mode is denied, or if all descriptors in quota mode
// are.
func (d *Decider) overall(result *Result) {
	quotas, full, denied := 0, 0, false
	for i := range result.Decisions {
		decision := &result.Decisions[i]
		over := decision.Outcome == Denied
		switch {
		case decision.Reason == Unlimited || decision.End:
		case decision.Quota:
			quotas++
			if over {
				full++
			}
		default:
			denied = denied || over
		}
	}
	result.quotasFull = quotas == full
	denied = denied || quotas > 0 && quotas == full
	result.Denied = denied && !d.options.ShadowMode
	result.Shadowed = denied && d.options.ShadowMode
}

var epoch = time.Now().Add(-time.Second)

// now returns the monotonic time since before the process started, so it is never 0. It costs half as much as time.Now.
func now() time.Duration { return time.Since(epoch) }
