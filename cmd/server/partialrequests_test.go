package main

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/rls"
)

// messageTimeout bounds the wait for a message after its headers.
const messageTimeout = 10 * time.Second

const shouldRateLimit = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName

// partialRequests sends the headers of n requests, without messages, over a new HTTP/2 connection.
// The connection stays open until the test ends. statuses receives the grpc-status of each stream
// that the server ends, or REFUSED_STREAM.
func partialRequests(t *testing.T, conn net.Conn, n int, header ...hpack.HeaderField) (statuses <-chan string) {
	t.Helper()
	return partialRequestsOf(t, conn, shouldRateLimit, n, header...)
}

// partialRequestsOf is partialRequests for a method.
func partialRequestsOf(t *testing.T, conn net.Conn, method string, n int, header ...hpack.HeaderField) (statuses <-chan string) {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	ended := make(chan string, n)
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&out, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = framer.WriteSettings()
	encoder := hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, f := range append([]hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
			{Name: ":authority", Value: "weir"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		}, header...) {
			_ = encoder.WriteField(f)
		}
		id, all := uint32(2*i+1), block.Bytes()
		part := all[:min(len(all), 1<<14)]
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndHeaders: len(part) == len(all)})
		for rest := all[len(part):]; len(rest) > 0; rest = rest[len(part):] {
			part = rest[:min(len(rest), 1<<14)]
			_ = framer.WriteContinuation(id, len(part) == len(rest), part)
		}
	}
	go func() {
		defer close(ended)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return
			}
			switch f := frame.(type) {
			case *http2.MetaHeadersFrame:
				for _, field := range f.RegularFields() {
					if field.Name == "grpc-status" {
						ended <- field.Value
					}
				}
			case *http2.RSTStreamFrame:
				if f.ErrCode == http2.ErrCodeRefusedStream {
					ended <- f.ErrCode.String()
				}
			}
		}
	}()
	if _, err := io.Copy(conn, &out); err != nil && len(header) == 0 {
		t.Fatal(err)
	}
	return ended
}

// askMany sends n requests, eight at a time. Each must be answered.
func (s *server) askMany(n int) {
	s.t.Helper()
	var askers sync.WaitGroup
	for range 8 {
		askers.Go(func() {
			for range n / 8 {
				if _, err := s.call("alice"); err != nil {
					s.t.Errorf("a whole request: %v", err)
				}
			}
		})
	}
	askers.Wait()
}

// Requests that have sent only their headers are not in flight, which is the only cause of load
// shedding and of slow reading.
func TestPartialRequestsDoNotShedOthers(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t))
	s.awaitHealthy()
	const conns, streams = 64, 128
	for range conns {
		conn, err := net.Dial("tcp", s.address("grpc"))
		must.Succeed(t, err)
		partialRequests(t, conn, streams)
	}
	s.askMany(800)
	if got := s.metric("weir_refused_requests_total"); got != "0" {
		t.Errorf("%s requests refused", got)
	}
	if got := s.metric("weir_requests_in_flight"); got != "0" {
		t.Errorf("%s requests in flight beside %d partial requests", got, conns*streams)
	}
}

// A hostile client does not wait for the settings of the connection, which announce the bound.
func TestStreamsBeyondTheBoundAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := partialRequests(t, connInMemory(t), maxStreams+3)
		synctest.Wait()
		if n := len(refused); n != 3 {
			t.Fatalf("%d of %d streams ended, want 3", n, maxStreams+3)
		}
		for range 3 {
			if got := <-refused; got != "REFUSED_STREAM" {
				t.Errorf("a stream beyond the bound ended with %s", got)
			}
		}
	})
}

// The server ends partial requests, because they hold memory.
func TestPartialGRPCRequestsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observed := make(chan codes.Code, 128)
		_, conn := serverInMemory(t, rls.Options{Observe: func(o *rls.Observation) { observed <- o.Code }})
		ended := partialRequests(t, conn, 128)
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{messageTimeout - time.Nanosecond, 0}, {time.Nanosecond, 128}} {
			time.Sleep(c.after)
			synctest.Wait()
			if n := len(ended); n != c.want {
				t.Errorf("%d of 128 partial requests ended within %v, want %d", n, c.after, c.want)
			}
			for range len(ended) {
				if got := <-ended; got != strconv.Itoa(int(codes.DeadlineExceeded)) {
					t.Errorf("grpc-status %s, want DEADLINE_EXCEEDED", got)
				}
				if got := <-observed; got != codes.DeadlineExceeded {
					t.Errorf("observed %v, want DeadlineExceeded", got)
				}
			}
		}
	})
}

// The server ends partial requests of every service.
func TestPartialRequestsOfOtherServicesTimeOut(t *testing.T) {
	for _, method := range []string{
		healthv1.Health_Check_FullMethodName, healthv1.Health_Watch_FullMethodName,
		reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName, reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName,
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := partialRequestsOf(t, connInMemory(t), method, 100)
				time.Sleep(messageTimeout - time.Nanosecond)
				synctest.Wait()
				if n := len(ended); n != 0 {
					t.Fatalf("%d partial requests ended early, want 0", n)
				}
				time.Sleep(time.Nanosecond)
				synctest.Wait()
				if n := len(ended); n != 100 {
					t.Fatalf("%d of 100 partial requests ended, want all", n)
				}
				if got := <-ended; got != strconv.Itoa(int(codes.DeadlineExceeded)) {
					t.Errorf("grpc-status %s, want DEADLINE_EXCEEDED", got)
				}
			})
		})
	}
}

// A compressed message of 4 kB may inflate to 4 MiB. Every method rejects it before decompression.
func TestCompressedMessagesAreRejected(t *testing.T) {
	observed := make(chan codes.Code, 1)
	conn := inMemory(t, rls.Options{Observe: func(o *rls.Observation) { observed <- o.Code }})
	packed := grpc.UseCompressor(gzip.Name)
	want := func(what string, err error) {
		t.Helper()
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v, want UNIMPLEMENTED", what, err)
		}
	}
	_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{Domain: "d"}, packed)
	want("rate limit", err)
	if code := <-observed; code != codes.Unimplemented {
		t.Errorf("observed %v, want UNIMPLEMENTED", code)
	}
	checks := healthv1.NewHealthClient(conn)
	_, err = checks.Check(t.Context(), &healthv1.HealthCheckRequest{}, packed)
	want("health check", err)
	watch, err := checks.Watch(t.Context(), &healthv1.HealthCheckRequest{}, packed)
	must.Succeed(t, err)
	_, err = watch.Recv()
	want("watch", err)
	if _, err := checks.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
		t.Errorf("uncompressed: %v", err)
	}
}

// Other services hold names only.
func TestLargeRequestsOfOtherServicesAreRejected(t *testing.T) {
	checks := healthv1.NewHealthClient(inMemory(t, rls.Options{}))
	_, err := checks.Check(t.Context(), &healthv1.HealthCheckRequest{Service: strings.Repeat("x", 64<<10)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v, want RESOURCE_EXHAUSTED", err)
	}
}

// Headers beyond 64 KiB are not kept. HPACK does not compress a tilde, which would take most of the
// time of this test.
func TestLargeHeadersAreNotKept(t *testing.T) {
	s := startServer(t, "CONFIG_PATH="+rulesFile(t))
	s.awaitHealthy()
	for range 8 {
		conn, err := net.Dial("tcp", s.address("grpc"))
		must.Succeed(t, err)
		partialRequests(t, conn, 1, hpack.HeaderField{Name: "x-fill", Value: strings.Repeat("~", 15<<20), Sensitive: true})
	}
	if _, err := s.call("alice"); err != nil {
		t.Error(err)
	}
	if inuse := s.metric("go_memstats_heap_inuse_bytes"); number(t, inuse) > 100<<20 {
		t.Errorf("%s bytes of heap beside 8 requests with headers of 15 MiB, want less than 100 MiB", inuse)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	must.Succeed(t, err)
	return n
}
