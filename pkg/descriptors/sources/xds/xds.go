// Package xds brings rules from a control plane, such as Envoy Gateway, that serves them by Envoy's discovery protocol:
// aggregated (ADS), state of the world. Each resource is a RateLimitConfig of the proto package
// ratelimit.config.ratelimit.v3, and arrives here as a file of YAML:
//
//	source := &xds.Source{Server: "envoy-gateway:18001", NodeID: "envoy-ratelimit"}
//	err := source.Watch(ctx, load) // nil from load acknowledges a push, an error refuses it
//
// The name of the resource is the name of the file; line and column in a fault are those of the YAML. What a control
// plane can say is what the messages have fields for: no algorithm, value_to_metric or share_threshold.
package xds

import (
	"context"
	"crypto/tls"
	"sync"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Source is a control plane that serves rules. Set the fields before use. Its methods are safe for concurrent use,
// but Watch runs once at a time.
type Source struct {
	Server string // host:port, or any target that grpc-go knows, such as unix:///path

	NodeID       string            // by which the control plane knows whose rules to serve
	NodeMetadata map[string]string // told beside it
	Headers      map[string]string // sent as gRPC metadata with each stream

	// TLS is asked before each connection, so that certificates that were replaced count from the next one on; an error
	// is that of a connection. [TLSFiles.Config] is one. Nil is cleartext.
	TLS func() (*tls.Config, error)

	MaxMessageSize int     // bytes of the largest push; 0 or less stands for grpc-go's 4 MiB
	Backoff        Backoff // between connections; the zero value stands for DefaultBackoff

	// Notify is told what happens, from the goroutine of Watch, if it is not nil.
	Notify func(Event)

	mu     sync.Mutex
	status Status
}

// Watch keeps a stream to the server until ctx ends; the error is that of ctx. Each push that differs from the one
// accepted last goes to apply as files, sorted by name; none at all are no rules. An error of apply, as of a push that
// cannot be read, refuses the push: the server is told the text, and the old rules are to stay. Watch calls apply and
// Notify from one goroutine, its own, and leaves none behind.
//
// A connection that ends changes no rules, and what turns out to be the same afterwards is acknowledged without a call
// of apply.
func (s *Source) Watch(ctx context.Context, apply func([]rulesfile.File) error) error {
	backoff := s.Backoff.orDefault()
	w := &watch{Source: s, apply: apply, long: backoff.Max}
	for failures := 0; ; failures++ {
		useful, err := w.connection(ctx)
		if ctx.Err() != nil {
			s.happened(Event{Kind: Disconnected})
			return ctx.Err()
		}
		if useful {
			failures = 0
		}
		retry := backoff.wait(failures)
		s.happened(Event{Kind: Disconnected, Err: err, Retry: retry})
		if sleep(ctx, retry) != nil {
			return ctx.Err()
		}
	}
}
