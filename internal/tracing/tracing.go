// Package tracing exports traces over OTLP. Each request gets a span from the instrumentation of
// grpc-go, and a child span for the store call. Without TRACING_ENABLED, none of this code runs.
package tracing

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Tracing holds the tracer of a process.
type Tracing struct {
	provider    *sdk.TracerProvider
	propagators propagation.TextMapPropagator
}

// Options configures a [Tracing]. The OTEL_EXPORTER_OTLP_* variables name the collector.
type Options struct {
	Protocol                      string // of OTLP: http or grpc
	ServiceName, ServiceNamespace string
	InstanceID                    string  // service.instance.id of the spans; "": a random one
	SamplingRate                  float64 // the fraction of traces to send, if the caller has not decided
	// Invalid is called with an error for each variable that has no effect.
	Invalid func(error)
	// Failed is called with the error of each export, whose spans are lost. Under load, many
	// exports may fail in a second.
	Failed func(error)
}

// Start starts the exporter.
func Start(ctx context.Context, o Options) (*Tracing, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(o.Failed))
	otel.SetLogger(logr.New(&sink{invalid: o.Invalid}))
	newExporter := func(ctx context.Context) (*otlptrace.Exporter, error) { return otlptracehttp.New(ctx) }
	if o.Protocol == "grpc" {
		newExporter = func(ctx context.Context) (*otlptrace.Exporter, error) { return otlptracegrpc.New(ctx) }
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	if o.InstanceID == "" {
		var id [16]byte
		_, _ = rand.Read(id[:])
		o.InstanceID = hex.EncodeToString(id[:])
	}
	about := resource.NewSchemaless(
		attribute.String("service.name", o.ServiceName),
		attribute.String("service.namespace", o.ServiceNamespace),
		attribute.String("service.instance.id", o.InstanceID),
	)
	return &Tracing{
		provider: sdk.NewTracerProvider(
			sdk.WithBatcher(exporter),
			sdk.WithResource(about),
			sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(o.SamplingRate))),
		),
		propagators: propagation.NewCompositeTextMapPropagator(
			propagation.TraceContext{}, b3.New(b3.WithInjectEncoding(b3.B3MultipleHeader)), propagation.Baggage{}),
	}, nil
}

// A sink receives what OpenTelemetry would write to stderr, and reports its errors: variables that
// it cannot read.
type sink struct {
	logr.LogSink // nil: without a level that is enabled, only Init and Error are called
	invalid      func(error)
}

// Init implements [logr.LogSink].
func (*sink) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink].
func (*sink) Enabled(int) bool { return false }

// Error implements [logr.LogSink]. It omits the value of the variable, which may be a secret.
func (s *sink) Error(err error, what string, _ ...any) {
	if urlErr, ok := errors.AsType[*url.Error](err); ok { // it has the URL in its text
		err = urlErr.Err
	}
	s.invalid(fmt.Errorf("an OTEL_EXPORTER_OTLP_ variable has no effect, correct it: %s: %w", what, err))
}

// Stop sends the remaining spans until ctx ends.
func (t *Tracing) Stop(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// GRPC returns the option of a gRPC server that traces its requests.
func (t *Tracing) GRPC() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider), otelgrpc.WithPropagators(t.propagators)))
}

// Store returns a store that traces the calls of inner as children of their requests.
func (t *Tracing) Store(inner limiters.Store) limiters.Store {
	return &tracedStore{inner, t.provider.Tracer("github.com/weir-rls/weir")}
}

// A tracedStore makes a span of each Take.
type tracedStore struct {
	limiters.Store
	tracer trace.Tracer
}

// Take implements [limiters.Store]. Its span ends even if the Take panics.
func (s *tracedStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	ctx, span := s.tracer.Start(ctx, "store take", trace.WithAttributes(attribute.Int("weir.operations", len(out))))
	failed := true // unless the Take returns
	defer func() {
		if failed {
			// The error may contain keys, and so data of users, so its text is omitted.
			span.SetStatus(codes.Error, "the store failed")
		}
		span.End()
	}()
	err := s.Store.Take(ctx, groups, out)
	failed = err != nil
	return err
}
