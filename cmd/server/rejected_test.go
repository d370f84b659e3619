package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/grpctest"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/rls"
)

// Envoy may let a request pass that is too large, so operators must see it in metrics and logs.
func TestTooLargeRequestIsCountedInMetrics(t *testing.T) {
	observed := make(chan codes.Code, 10)
	conn := inMemory(t, rls.Options{Observe: func(o *rls.Observation) {
		if !o.Undecodable() || o.Protocol != rls.GRPC {
			t.Errorf("%+v: want an undecodable request by gRPC", o)
		}
		observed <- o.Code
	}})
	_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
		Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "k", Value: strings.Repeat("v", 5<<20)},
		}}},
	})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want RESOURCE_EXHAUSTED", err)
	}
	select {
	case code := <-observed:
		if code != codes.ResourceExhausted {
			t.Errorf("observed %v, want ResourceExhausted", code)
		}
	case <-time.After(time.Minute):
		t.Error("the request was not observed")
	}
}

// If Envoy gives up before Weir has read its message, failure_mode_deny decides. Operators must see
// these requests in the metrics.
func TestRequestAbandonedBeforeItIsReadIsCountedInMetrics(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for want, ctx := range map[codes.Code]context.Context{codes.Canceled: canceled, codes.DeadlineExceeded: expired} {
		metrics := telemetry.NewMetrics("")
		service := rls.New(nil, rls.Options{Observe: metrics.Observe})
		receiver := grpcmessage.Receiver{Codec: rls.Codec()}
		desc := service.ServiceDesc(receiver.Receive, admission.NewGate(1))
		if _, err := desc.Methods[0].Handler(service, ctx, nil, nil); status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
		got := scrape(t, metrics)
		for _, line := range []string{
			`weir_requests_total{code="` + want.String() + `",overall=""} 1`,
			`weir_undecodable_requests_total{protocol="grpc"} 0`,
			`weir_request_duration_seconds_count 0`, // the histogram has only decoded requests
		} {
			if !strings.Contains(got, line+"\n") {
				t.Errorf("the metrics lack %s", line)
			}
		}
	}
}

func scrape(t *testing.T, metrics *telemetry.Metrics) string {
	t.Helper()
	page := httptest.NewRecorder()
	metrics.Handler.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return page.Body.String()
}

// inMemory returns a connection to a server without rules.
func inMemory(t *testing.T, o rls.Options) *grpc.ClientConn {
	t.Helper()
	return inMemoryWith(t, admission.NewGate(1), o)
}

// inMemoryWith is inMemory with a bound of requests in flight.
func inMemoryWith(t *testing.T, gate *admission.Gate, o rls.Options) *grpc.ClientConn {
	t.Helper()
	decider := decide.New(func() *descriptors.Rules { return &descriptors.Rules{} }, limiterstest.NewReference(), decide.Options{})
	return grpctest.Serve(t, processWith(t, gate).newGRPC(rls.New(decider, o)))
}

// The response to a body that is too large states the bound, and the metrics count the request, as
// they do by gRPC.
func TestTooLargeJSONRequestIsExplainedAndCounted(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t))
	s.awaitHealthy()
	for _, size := range []int{rls.MaxBodyBytes + 1, 8 * rls.MaxBodyBytes} {
		code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", `{"domain":"`+strings.Repeat("x", size-len(`{"domain":""}`))+`"}`)
		if want := "the body has more than 262144 bytes"; code != 400 || !strings.Contains(body, want) {
			t.Errorf("%d bytes: %d %q, want 400 with %q", size, code, body, want)
		}
	}
	if got := s.metricOrNone(`weir_requests_total{code="InvalidArgument",overall=""}`); got != "2" {
		t.Errorf("%s requests counted as invalid, want 2", got)
	}
	// net/http must know that the body was cut. Otherwise it resets the connection while the client
	// still sends, and the response may be lost.
	for range 50 {
		fetch(t, "POST", "http://"+s.httpAddr+"/json", strings.Repeat(" ", 8*rls.MaxBodyBytes))
	}
	if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", `{"domain":"`+strings.Repeat("x", rls.MaxBodyBytes-len(`{"domain":""}`))+`"}`); code != 400 || !strings.Contains(body, "descriptor") {
		t.Errorf("the largest body: %d %q, want that its descriptors are missing", code, body)
	}
}
