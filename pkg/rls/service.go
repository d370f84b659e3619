// Package rls is Envoy's RateLimitService. A request goes one way through it: decode, match, take, encode, observe. Only
// decode rejects input, only take does I/O, and what is measured or logged is read off the values at the end.
package rls

import (
	"context"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A Service answers Envoy from the rules of the moment and the state in a store.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	rules     func() *descriptors.Rules
	store     limiters.Store
	options   Options
	overrides overrides
}

// Options are what may be otherwise. The zero value is how Weir is without being told.
type Options struct {
	// Observe is called after each answer. It keeps neither the Answer nor any slice in it: they are for the next.
	Observe func(*Answer)
	// ShadowMode answers OK whatever the statuses say.
	ShadowMode bool
	// QuotaMode makes every descriptor one in quota mode, those that no rule limits too.
	QuotaMode bool
	// AllOrNothing charges a request whole or not at all: what its limits allow is not charged if one of them denies it. Rules in
	// shadow mode are charged apart, and those in quota mode where there are several: none of them denies it by itself.
	AllOrNothing bool
	// DynamicMetadata tells Envoy the descriptors, and the metadata of the rules that let them pass.
	DynamicMetadata bool
	// Headers are names of response headers; an empty Limit is none of them.
	Headers Headers
}

// Headers name the response headers that tell a limit, what remains of it, and the seconds until its reset.
type Headers struct{ Limit, Remaining, Reset string }

// New makes a Service. It asks rules once per request; nil rules are rules that have not come yet.
func New(rules func() *descriptors.Rules, store limiters.Store, o Options) *Service {
	if o.Observe == nil {
		o.Observe = func(*Answer) {}
	}
	return &Service{rules: rules, store: store, options: o}
}

// ShouldRateLimit implements Envoy's RateLimitService. Its errors are INVALID_ARGUMENT for a request that cannot be
// meant, UNAVAILABLE where the store could not decide or no rules have come yet, and those of a context that ended; with
// any of them Envoy does what its failure_mode_deny says.
func (s *Service) ShouldRateLimit(
	ctx context.Context, request *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	return s.ask(ctx, request, true)
}

func (s *Service) ask(
	ctx context.Context, request *ratelimitv3.RateLimitRequest, byGRPC bool,
) (response *ratelimitv3.RateLimitResponse, err error) {
	c := newCall()
	c.start, c.answer.GRPC = now(), byGRPC
	c.asked.read(request)
	if err = s.answer(ctx, c); err == nil {
		response = s.response(c)
	}
	s.observe(c, err)
	c.release()
	return response, err
}

// answer decides a call. An error is a status.
func (s *Service) answer(ctx context.Context, c *call) error {
	a, p := &c.answer, &c.planned
	if err := c.asked.validate(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	a.Domain = c.asked.domain
	rules := s.rules()
	if rules == nil {
		return status.Error(codes.Unavailable, "no rate limit configuration loaded")
	}
	if err := p.plan(s, rules, &c.asked); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	a.Domain, a.DomainNotFound, a.Unmatched = c.asked.domain, p.domainNotFound, p.unmatched(a.Unmatched, &c.asked)
	why := "the store could not decide every descriptor"
	if len(p.hits) > 0 {
		start := now()
		err := s.store.Take(ctx, time.Time{}, p.groups, p.verdicts)
		c.decided = now()
		a.StoreTook = c.decided - start
		if err != nil {
			p.fail(err)
			why = "the store did not answer"
		}
	}
	a.Decisions = p.decisions(a.Decisions, &c.asked)
	var matters bool
	c.statuses, matters, a.Err = p.statuses(c.statuses)
	a.Denied, a.GlobalShadow = s.overall(p, c.statuses)
	if matters && !a.Denied && !s.options.ShadowMode {
		return undecided(ctx, why)
	}
	return nil
}

// observe tells of a call whose answer is ready.
func (s *Service) observe(c *call, err error) {
	a := &c.answer
	if c.decided == 0 {
		c.decided = now()
	}
	a.Took = c.decided - c.start
	if err != nil {
		a.Code = status.Code(err)
		if a.Err == nil {
			a.Err = err
		}
	}
	s.options.Observe(a)
}

// undecided is the error of a request that the store could not decide. What the store said is for the log: it may name
// keys, which hold what users sent.
func undecided(ctx context.Context, why string) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, why)
}
