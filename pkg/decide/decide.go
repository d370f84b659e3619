// Package decide decides rate limit requests. It takes a domain, descriptors and hits, and returns
// one [Decision] per descriptor.
//
// The package knows no protocol. Envoy's RateLimitService (package rls) and everything else that
// needs a decision call [Decider.Decide] with plain Go values, as in the example of the package.
//
// Decide takes four steps: validate the request, match each descriptor to its limits, charge all
// limits in one store call, and combine the verdicts. If a denied or canceled request opened
// leases, a second store call ends them. Only the store does I/O. A [Planner] takes the first two
// steps alone, for code that explains or counts requests.
package decide

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Decider decides requests with the rules in force and a store. It is safe for concurrent use.
type Decider struct {
	planner Planner
	store   limiters.Taker
}

// Options configures a [Decider] or a [Planner]. The zero value is the default configuration.
type Options struct {
	// ShadowMode allows every request. Decisions still report denials.
	ShadowMode bool
	// QuotaMode treats all descriptors, even without a rule, as if their rules were in quota mode.
	QuotaMode bool
	// AllOrNothing charges all limits of a request together: if one of them denies it, those that
	// allow it are not charged. Limits that deny it still count denied hits. Rules in shadow mode
	// are excluded, because they deny nothing, and so are rules in quota mode if the request has
	// more than one.
	AllOrNothing bool
	// LeaseSecret is the secret of [limiters.NewLeaseID]. All processes that share a store need the
	// same secret.
	LeaseSecret []byte
	// EndTimeout bounds the store call that ends the leases of a denied or canceled request;
	// default 1 s.
	EndTimeout time.Duration
	// CalendarMonths makes month a calendar month in UTC for limits in requests, unless the rule
	// sets window_start.
	CalendarMonths bool
}

// New returns a Decider. It calls rules once for each request; nil rules mean that none are loaded
// yet. An operation that store cannot decide fails, unless store is a guard.Fallback, which applies
// its on_store_error.
func New(rules func() *descriptors.Rules, store limiters.Taker, o Options) *Decider {
	if o.EndTimeout <= 0 {
		o.EndTimeout = time.Second
	}
	return &Decider{planner: Planner{rules: rules, options: o}, store: store}
}

// Decide decides r and writes the outcome to result, which it clears first.
//
// The caller may reuse both values. A reused Result keeps its memory, so Decide allocates little
// more than the key of each descriptor. Result refers to the Request and to that memory, and so
// does the Plan of a Decision. Copy data that must outlive the next Decide.
//
// If the request is denied or ctx ends, Decide ends the leases that the request may have opened, in
// a store call that is independent of ctx, before it returns. An allowed request whose leases it
// ends gets an error of kind [ContextEnded].
//
// A non-nil error is an [*Error], and means that the request is neither allowed nor denied. Result
// is then only for metrics and logs. Under [Options.ShadowMode], a failure of the store or the end
// of ctx is no error.
func (d *Decider) Decide(ctx context.Context, r *Request, result *Result) error {
	start := monotonic()
	result.Reset()
	if err := d.planner.Plan(r, &result.PlannedRequest); err != nil {
		result.Duration = monotonic() - start
		return err
	}
	storeErr := d.callStore(ctx, start, result)
	shadowMode := d.planner.options.ShadowMode
	result.classifyAll(shadowMode)
	ended := ctx.Err() // read once: ctx may end after the leases were kept
	d.endLeases(ctx, ended != nil, result)
	switch {
	case shadowMode:
	case result.combined.Undecided():
		return undecidedError(ended, storeErr != nil, result.StoreErr)
	case result.GivenUpLeases > 0 && !result.Denied:
		// The request is allowed, but ctx has ended, and the request has no lease any more.
		return contextEnded(ended)
	}
	return nil
}

// callStore decides the operations of a planned request, if there are any. It sets the durations of
// the request, which began at start.
func (d *Decider) callStore(ctx context.Context, start time.Duration, result *Result) (err error) {
	result.verdicts = resized(result.verdicts, len(result.ops))
	called := monotonic()
	answered := called
	if len(result.ops) > 0 {
		err = d.store.Take(ctx, result.groups, result.verdicts)
		answered = monotonic()
	}
	result.StoreDuration, result.Duration = answered-called, answered-start
	return err
}

var processStart = time.Now()

// monotonic returns the time since the process started. It reads one clock, and time.Now two.
func monotonic() time.Duration { return time.Since(processStart) }
