package tracing

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// collected starts tracing to a collector that takes spans by OTLP over HTTP. stop ends it and
// returns what the collector received.
func collected(t *testing.T) (tracing *Tracing, stop func() []*collectorv1.ExportTraceServiceRequest) {
	t.Helper()
	got := make(chan *collectorv1.ExportTraceServiceRequest, 16)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request collectorv1.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &request) != nil {
			t.Error("not a request of OTLP")
			return
		}
		got <- &request
	}))
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	tracing, err := Start(context.Background(), options(func(err error) { t.Error(err) }))
	must.Succeed(t, err)
	return tracing, func() (all []*collectorv1.ExportTraceServiceRequest) {
		must.Succeed(t, tracing.Stop(context.Background()))
		for len(got) > 0 {
			all = append(all, <-got)
		}
		return all
	}
}

func options(failed func(error)) Options {
	return Options{ServiceName: "RateLimit", ServiceNamespace: "edge", InstanceID: "a-1", Protocol: "http", SamplingRate: 1, Invalid: failed, Failed: failed}
}

func TestStoreSpanIsAChildOfRequestSpan(t *testing.T) {
	tracing, stop := collected(t)
	ctx, request := tracing.provider.Tracer("test").Start(context.Background(), "request")
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Second})
	groups, out := []limiters.Group{{{Key: "alice", Limit: limit, Hits: 1}}}, make([]limiters.Verdict, 1)
	if err := tracing.Store(limiterstest.NewReference()).Take(ctx, groups, out); err != nil || !out[0].Allowed {
		t.Fatal(err, out)
	}
	request.End()
	parents, about := map[string]string{}, map[string]string{}
	for _, r := range stop() {
		for _, of := range r.GetResourceSpans() {
			for _, a := range of.GetResource().GetAttributes() {
				about[a.GetKey()] = a.GetValue().GetStringValue()
			}
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					parents[span.GetName()] = string(span.GetParentSpanId())
					if id := request.SpanContext().SpanID(); span.GetName() == "store take" && string(span.GetParentSpanId()) != string(id[:]) {
						t.Error("the call of the store stands apart from the request")
					}
				}
			}
		}
	}
	if len(parents) != 2 {
		t.Errorf("spans %v, want two", parents)
	}
	for name, want := range map[string]string{"service.name": "RateLimit", "service.namespace": "edge", "service.instance.id": "a-1"} {
		if about[name] != want {
			t.Errorf("%s is %q, want %q", name, about[name], want)
		}
	}
}

// Envoy sends its trace in headers of W3C or of Zipkin, and has decided whether it is sampled.
func TestRequestSpanIsAChildOfTheCallersSpan(t *testing.T) {
	tracing, stop := collected(t)
	server := grpc.NewServer(tracing.GRPC())
	healthv1.RegisterHealthServer(server, health.NewServer())
	client := healthv1.NewHealthClient(grpctest.Serve(t, server))
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, headers := range [][]string{
		{"traceparent", "00-" + trace + "-b7ad6b7169203331-01"},
		{"x-b3-traceid", trace, "x-b3-spanid", "b7ad6b7169203331", "x-b3-sampled", "1"},
		{"traceparent", "00-" + trace + "-b7ad6b7169203331-00"}, // not sampled
	} {
		_, err := client.Check(metadata.AppendToOutgoingContext(t.Context(), headers...), &healthv1.HealthCheckRequest{})
		must.Succeed(t, err)
	}
	server.GracefulStop() // ends the spans
	spans := 0
	for _, r := range stop() {
		for _, of := range r.GetResourceSpans() {
			for _, scope := range of.GetScopeSpans() {
				for _, span := range scope.GetSpans() {
					spans++
					if hex.EncodeToString(span.GetTraceId()) != trace || hex.EncodeToString(span.GetParentSpanId()) != "b7ad6b7169203331" {
						t.Errorf("%v: want the trace and the span of the caller", span)
					}
				}
			}
		}
	}
	if spans != 2 {
		t.Errorf("%d spans, want 2", spans)
	}
}

func TestMissingCollectorLosesOnlySpans(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	for _, protocol := range []string{"http", "grpc"} {
		reported := make(chan error, 16)
		o := options(func(err error) { reported <- err })
		o.Protocol = protocol
		tracing, err := Start(context.Background(), o)
		must.Succeed(t, err)
		failing := tracing.Store(&limiterstest.FailingStore{Err: errFailing})
		if err := failing.Take(context.Background(), make([]limiters.Group, 1), nil); !errors.Is(err, errFailing) {
			t.Errorf("%s: got error %v, want %v", protocol, err, errFailing)
		}
		if err := tracing.Stop(context.Background()); err == nil && len(reported) == 0 {
			t.Errorf("%s: lost spans are not logged", protocol)
		}
	}
}

// The values may be secrets, and OpenTelemetry would write them to stderr.
func TestInvalidVariablesAreReportedWithoutTheirValues(t *testing.T) {
	for variable, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS":  "Bearer s3cret",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://weir:s3cret@collector/%zz",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, value)
			reported := make(chan error, 16)
			tracing, err := Start(context.Background(), options(func(err error) { reported <- err }))
			must.Succeed(t, err)
			defer func() { _ = tracing.Stop(context.Background()) }()
			select {
			case err := <-reported:
				if !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_ variable has no effect") || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("reported %v, want a variable without effect, and not its value", err)
				}
			default:
				t.Error("not reported")
			}
		})
	}
}

var errFailing = errors.New("failing")

func TestPanicOfTheStoreEndsItsSpan(t *testing.T) {
	tracing, stop := collected(t)
	func() {
		defer func() { _ = recover() }()
		_ = tracing.Store(panicking{}).Take(context.Background(), nil, nil)
		t.Error("no panic")
	}()
	if all := stop(); len(all) != 1 || !strings.Contains(all[0].String(), "the store failed") || strings.Contains(all[0].String(), "alice") {
		t.Errorf("%v: want one failed span without the text of the panic", all)
	}
}

type panicking struct{ limiters.Store }

func (panicking) Take(context.Context, []limiters.Group, []limiters.Verdict) error {
	panic("the key alice")
}
