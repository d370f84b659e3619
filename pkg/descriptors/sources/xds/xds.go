// Package xds receives rules from a control plane, such as Envoy Gateway, by Envoy's aggregated
// discovery service (ADS) in its state-of-the-world form. Each resource is a RateLimitConfig of the
// proto package ratelimit.config.ratelimit.v3. The package converts it to a rules file in YAML:
//
//	source := &xds.Source{Server: "envoy-gateway:18001", NodeID: "envoy-ratelimit"}
//	err := source.Watch(ctx, load) // a nil error of load acknowledges a push, an error rejects it
//
// The name of the resource is the name of the file. Line and column of a fault refer to the YAML.
// RateLimitConfig has no field for Weir's own keys, such as algorithm, and none for value_to_metric
// and share_threshold.
package xds

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// TypeURL is the type URL of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	// defaultMaxWait is the maximum wait between connections.
	defaultMaxWait = 10 * time.Second
	// defaultConnectTimeout bounds opening a stream.
	defaultConnectTimeout = 10 * time.Second
	// defaultReplyTimeout is how long to wait for a reply to the first request if rules are in
	// force.
	defaultReplyTimeout = 2 * time.Second
	// quickWait bounds the first wait after a useful connection.
	quickWait = time.Second
)

// A Source is a control plane. Its fields must be set before use. Only one Watch may run at a time.
type Source struct {
	Server string // host:port, or another target of grpc-go, such as unix:///path

	NodeID       string            // identifies this client to the control plane
	NodeMetadata map[string]string // sent with NodeID
	Headers      map[string]string // sent as gRPC metadata with each stream

	// TLS returns the configuration for the next connection, so that renewed certificates take
	// effect. Its error counts as a failed connection. If TLS is nil, connections are plaintext.
	TLS func() (*tls.Config, error)

	MaxMessageSize int // in bytes; if 0 or negative, grpc-go's default of 4 MiB

	// Backoff sets the waits between connections, measured between the starts of attempts. Once the
	// server is reachable, rules arrive within the longer of Backoff.Max and 10 s. The zero value
	// is 1 s to 10 s with full jitter.
	Backoff backoff.Backoff

	// HasRules, if not nil, returns whether rules are in force. Watch calls it for each stream.
	// Rules that Watch did not accept, such as those of an earlier Watch, must end too if the
	// server has deleted them meanwhile. Such a server may not reply to a first request.
	HasRules func() bool

	// Notify, if not nil, receives each event on the goroutine of Watch.
	Notify func(Event)

	connectTimeout, replyTimeout time.Duration // set by tests; 0: the default
}

// Watch keeps a stream to the server until ctx ends, and returns the error of ctx. It passes each
// push that differs from the one accepted last to load, as files sorted by name. A push without
// resources is an empty list: no rules. If a push cannot be read, load receives the error instead,
// and must return it or another. If load returns an error, Watch rejects the push and sends the
// server the text of the error. It then passes on the next push, whatever it contains. Watch calls
// load and Notify from its own goroutine and leaves no goroutine behind.
//
// When a connection ends the rules stay in force. A push that repeats them is acknowledged without
// a call of load.
func (s *Source) Watch(ctx context.Context, load func([]rulesfile.File, error) error) error {
	w := &watch{Source: s, load: load, waits: s.Backoff}
	if w.waits == (backoff.Backoff{}) {
		w.waits = backoff.Backoff{Initial: time.Second, Max: defaultMaxWait, Jitter: 1}
	}
	failures := 0
	for {
		began := time.Now()
		result, err := w.runStream(ctx)
		if ctx.Err() != nil {
			s.notify(Event{Kind: Disconnected})
			return ctx.Err()
		}
		if result == useful {
			failures = 0
		}
		wait := w.wait(result, failures, time.Since(began))
		if result != useful {
			failures++
		}
		s.notify(Event{Kind: Disconnected, Err: err, Retry: wait})
		if backoff.Sleep(ctx, wait) != nil {
			return ctx.Err()
		}
	}
}

// wait returns the wait after a connection that lasted took, following a number of consecutive
// failures.
func (w *watch) wait(result connectionResult, failures int, took time.Duration) time.Duration {
	switch result {
	case useful:
		first := w.waits
		first.Initial = min(first.Initial, quickWait)
		return first.Wait(0)
	case unreachable:
		return max(w.waits.Wait(failures)-took, 0)
	default:
		return w.waits.Wait(failures)
	}
}
