// Package rls is Envoy's RateLimitService, by gRPC and as JSON by HTTP. A request takes three steps: decode, decide (package
// decide), encode. Metrics and logs read an [Observation] of the finished request.
package rls

import (
	"context"
	"errors"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/pkg/decide"
)

// A Service answers Envoy's rate limit requests. It is safe for concurrent use.
type Service struct {
	ratelimitv3.UnimplementedRateLimitServiceServer

	decider *decide.Decider
	options Options
}

// Options configures a [Service]. The zero value is the default configuration.
type Options struct {
	// Observe, if not nil, is called once per request, after it is finished. It must not keep the Observation nor anything
	// that it points to: the next request uses the same memory.
	Observe func(*Observation)
	// DynamicMetadata adds the request's descriptors, and the metadata of the rules that allow them, to responses. A denied
	// request has the limit that denies it in its metadata without this option.
	DynamicMetadata bool
	// Headers are the names of the response headers to add. An empty Limit adds none.
	Headers Headers
	// StandardHeaders adds RateLimit-Policy and RateLimit to all responses, and Retry-After to denials, as draft-ietf-httpapi-ratelimit-headers-11 does.
	StandardHeaders bool
	// RetryAfterJitter is the largest part of a wait that Retry-After adds to it, at random: 0.1 adds up to 10 %.
	RetryAfterJitter float64
	// DeniedByHeader names the header of a denial that names the limit. Empty adds none.
	DeniedByHeader string
	// Receipts, if its Header is not empty, adds a receipt to denials.
	Receipts Receipts
}

// Headers names the response headers that report a limit, its remaining hits, and the seconds until its reset.
type Headers struct{ Limit, Remaining, Reset string }

// An Observation describes a finished request, for metrics and logs.
type Observation struct {
	decide.Result
	// Request is the decoded request. Its descriptors are incomplete if it is invalid.
	Request *decide.Request
	GRPC    bool       // the request came by gRPC, not as JSON
	Code    codes.Code // of the gRPC status; also for a request by JSON
	// Undecodable says that the request was no message: it was malformed or too large. Nothing was decided.
	Undecodable bool
	// Err says why Code is not OK. If Code is OK it is the Result's StoreErr. It is for logs only: it may hold keys, which
	// hold what users sent.
	Err error
}

// New returns a Service that decides by d.
func New(d *decide.Decider, o Options) *Service {
	if o.Observe == nil {
		o.Observe = func(*Observation) {}
	}
	return &Service{decider: d, options: o}
}

// ShouldRateLimit implements Envoy's RateLimitService. Its errors are INVALID_ARGUMENT for an invalid request, UNAVAILABLE
// if the store could not decide or no rules have been loaded, and CANCELLED or DEADLINE_EXCEEDED if ctx ended. On any
// error Envoy does what its failure_mode_deny says.
func (s *Service) ShouldRateLimit(
	ctx context.Context, request *ratelimitv3.RateLimitRequest,
) (*ratelimitv3.RateLimitResponse, error) {
	return s.decideMessage(ctx, request, true)
}

// decideMessage serves a request of Envoy's generated type.
func (s *Service) decideMessage(
	ctx context.Context, request *ratelimitv3.RateLimitRequest, byGRPC bool,
) (response *ratelimitv3.RateLimitResponse, err error) {
	c := newCall()
	c.observation.GRPC = byGRPC
	c.message.read(request)
	if err = s.decide(ctx, c); err == nil {
		response, err = s.response(c)
	}
	s.observe(c, err)
	c.release()
	return response, err
}

// decide decides a call whose message is decoded. Its error is a gRPC status.
func (s *Service) decide(ctx context.Context, c *call) error {
	if err := c.message.request(&c.request); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.decider.Decide(ctx, &c.request, &c.observation.Result); err != nil {
		return statusOf(err)
	}
	return nil
}

// statusOf returns the gRPC status of an error of package decide.
func statusOf(err error) error {
	var failed *decide.Error
	if !errors.As(err, &failed) {
		return err
	}
	switch failed.Kind {
	case decide.InvalidRequest:
		return status.Error(codes.InvalidArgument, err.Error())
	case decide.ContextEnded:
		return status.FromContextError(failed.Unwrap()).Err()
	default:
		return status.Error(codes.Unavailable, err.Error())
	}
}

// ObserveRejected reports a request by gRPC that was rejected before the service received it, such as one whose message is
// too large. The error is its gRPC status.
func (s *Service) ObserveRejected(err error) { s.observeRejected(err, true) }

func (s *Service) observeRejected(err error, byGRPC bool) {
	c := newCall()
	c.observation.GRPC, c.malformed = byGRPC, err
	s.observe(c, err)
	c.release()
}

// observe reports a finished call. A nil err means that its response is ready.
func (s *Service) observe(c *call, err error) {
	o := &c.observation
	o.Request = &c.request
	o.Code, o.Err, o.Undecodable = status.Code(err), o.StoreErr, c.malformed != nil
	if o.Err == nil {
		o.Err = err
	}
	s.options.Observe(o)
}
