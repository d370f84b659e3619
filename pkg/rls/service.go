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
	observe   func(*Answer)
	overrides overrides
}

// New makes a Service. It asks rules once per request. After each answer it calls observe, if that is not nil, with a
// value that is not used afterwards.
func New(rules func() *descriptors.Rules, store limiters.Store, observe func(*Answer)) *Service {
	if observe == nil {
		observe = func(*Answer) {}
	}
	return &Service{rules: rules, store: store, observe: observe}
}

// An Answer is what became of a request, for metrics and logs.
type Answer struct {
	Code      codes.Code
	Err       error // why Code is not OK, or a descriptor is undecided, with what is not for the client to read
	Denied    bool  // the overall code is OVER_LIMIT
	Took      time.Duration
	StoreTook time.Duration // 0: the store was not asked
	Decisions []Decision
}

// A Decision is what one limit said of one descriptor.
type Decision struct {
	Domain   string            // one that the rules have
	Rule     *descriptors.Rule // nil for an override that no rule matches
	Entries  []descriptors.Entry
	Override bool // the limit came with the request
	Limit    descriptors.RateLimit
	Hits     int64 // > 0 charged, 0 looked, < 0 given back
	Verdict  limiters.Verdict
}

// RuleName is the name of the rule, "" without one.
func (d *Decision) RuleName() string {
	if d.Rule == nil {
		return ""
	}
	return d.Rule.Name
}

// ShouldRateLimit implements Envoy's RateLimitService. Its errors are INVALID_ARGUMENT for a request that cannot be
// meant, UNAVAILABLE where the store could not decide, and those of a context that ended; with any of them Envoy does
// what its failure_mode_deny says.
func (s *Service) ShouldRateLimit(
	ctx context.Context, request *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	start := time.Now()
	a := &Answer{}
	response, err := s.answer(ctx, request, a)
	a.Took = time.Since(start)
	a.Code = status.Code(err)
	if err != nil && a.Err == nil {
		a.Err = err
	}
	s.observe(a)
	return response, err
}

func (s *Service) answer(
	ctx context.Context, request *ratelimitv3.RateLimitRequest, a *Answer,
) (*ratelimitv3.RateLimitResponse, error) {
	asked, err := decode(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	p := s.plan(asked)
	if p.err != nil {
		return nil, status.Error(codes.InvalidArgument, p.err.Error())
	}
	if len(p.hits) > 0 {
		start := time.Now()
		err := s.store.Take(ctx, time.Time{}, p.hits, p.verdicts)
		a.StoreTook = time.Since(start)
		if err != nil {
			a.Err = err
			return nil, undecided(ctx, "the store did not answer")
		}
	}
	a.Decisions = p.decisions(asked)
	response, err := encode(p)
	a.Err = err
	if response == nil {
		return nil, undecided(ctx, "the store could not decide every descriptor")
	}
	a.Denied = response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
	return response, nil
}

// undecided is the error of a request that the store could not decide. What the store said is for the log: it may name
// keys, which hold what users sent.
func undecided(ctx context.Context, why string) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, why)
}
