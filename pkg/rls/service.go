// Package rls serves Envoy's RateLimitService over gRPC, and as JSON over HTTP. It decodes a
// request, calls package decide, and encodes the result. Metrics and logs read an [Observation] of
// the finished request.
package rls

import (
	"context"
	"errors"
	"runtime"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/pkg/decide"
)

// A Service answers Envoy's rate limit requests. It is safe for concurrent use.
type Service struct {
	decider *decide.Decider
	options Options
	parsing chan struct{} // has room for the bodies that are parsed at a time
}

// Options configures a [Service]. The zero value is the default configuration.
type Options struct {
	// Observe, if not nil, is called once for each finished request. It is not called for a request
	// that the [Gate] rejected, or whose decision panicked. It must not retain the Observation or
	// anything reachable from it, because its memory is reused.
	Observe func(*Observation)
	// DynamicMetadata adds the request's descriptors and the metadata of the allowing rules to
	// responses. The metadata of a denied request names the denying limit even without this option.
	DynamicMetadata bool
	// Headers names the response headers. An empty Limit disables them.
	Headers Headers
	// StandardHeaders adds RateLimit-Policy and RateLimit to all responses, and Retry-After to
	// denials, following draft-ietf-httpapi-ratelimit-headers-11.
	StandardHeaders bool
	// RetryAfterJitter is the maximum random part that Retry-After adds to a wait, from 0 to 1: 0.1
	// adds up to 10 %. Other values are replaced by the nearest of these.
	RetryAfterJitter float64
	// DeniedByHeader is the header of a denied request that names the limit. Empty disables it.
	DeniedByHeader string
	// Receipts adds a receipt to denials, unless its Header is empty.
	Receipts Receipts
}

// An Observation describes a finished request, for metrics and logs.
type Observation struct {
	decide.Result
	// Request is the decoded request. If the request is invalid, it may be incomplete.
	Request  *decide.Request
	Protocol Protocol
	Code     codes.Code // the gRPC status; also set for a request as JSON
	// Undecoded reports that no message was decoded, so that nothing was decided and Duration
	// measures nothing.
	Undecoded bool
	// Err explains a Code other than OK. With Code OK, it is the Result's StoreErr. It may contain
	// keys, and so data of users, and must only be logged.
	Err error
}

// A Protocol is the protocol of a request.
type Protocol string

// The protocols. Requests in JSON arrive over HTTP.
const (
	GRPC Protocol = "grpc"
	JSON Protocol = "json"
)

// Undecodable reports that the message was malformed or too large. Otherwise an Undecoded request
// ended because its client left, or its deadline passed.
func (o *Observation) Undecodable() bool {
	return o.Undecoded && o.Code != codes.Canceled && o.Code != codes.DeadlineExceeded
}

// New returns a Service that decides with d.
func New(d *decide.Decider, o Options) *Service {
	if o.Observe == nil {
		o.Observe = func(*Observation) {}
	}
	if !(o.RetryAfterJitter > 0) { // NaN too
		o.RetryAfterJitter = 0
	}
	o.RetryAfterJitter = min(o.RetryAfterJitter, 1)
	return &Service{decider: d, options: o, parsing: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// handle decides a request, observes it and releases e. It returns the response in wire format. The
// error is a gRPC status: INVALID_ARGUMENT for an invalid request, UNAVAILABLE if the store failed
// or no rules are loaded, and CANCELLED or DEADLINE_EXCEEDED if ctx ended. On an error, Envoy's
// failure_mode_deny decides.
func (s *Service) handle(ctx context.Context, e *exchange) (wire []byte, err error) {
	err = s.decide(ctx, e)
	if err == nil {
		wire = s.marshal(e)
	}
	s.observe(e, err)
	e.release()
	return wire, err
}

// malformedStatus returns the gRPC status of a request that could not be decoded; nil if err is
// nil.
func malformedStatus(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.InvalidArgument, "malformed request: "+err.Error())
}

// decide decides a request if its message was decoded, and fills its Result. Its error is a gRPC
// status.
func (s *Service) decide(ctx context.Context, e *exchange) error {
	if e.decodeErr != nil {
		return e.decodeErr
	}
	if err := e.message.toRequest(&e.request); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := s.decider.Decide(ctx, &e.request, &e.observation.Result); err != nil {
		return statusOf(err)
	}
	return nil
}

// statusOf converts an error of package decide to a gRPC status.
func statusOf(err error) error {
	failed, ok := errors.AsType[*decide.Error](err)
	if !ok { // unreachable: Decide returns no other error
		return status.Error(codes.Internal, err.Error())
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

// observe reports a finished request. A nil err means that it has a response.
func (s *Service) observe(e *exchange, err error) {
	o := &e.observation
	o.Request = &e.request
	o.Code, o.Err, o.Undecoded = status.Code(err), o.StoreErr, e.decodeErr != nil
	if o.Err == nil {
		o.Err = err
	}
	s.options.Observe(o)
}
