package conform

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

type (
	request    = ratelimitv3.RateLimitRequest
	response   = ratelimitv3.RateLimitResponse
	descriptor = commonv3.RateLimitDescriptor
	entry      = commonv3.RateLimitDescriptor_Entry
)

const (
	codeOK   = ratelimitv3.RateLimitResponse_OK
	codeOver = ratelimitv3.RateLimitResponse_OVER_LIMIT

	method = ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName
)

// connections is the number of connections that the checks under concurrency share.
const connections = 8

// dial makes the shared connections.
func (r *runner) dial() error {
	if _, port, err := net.SplitHostPort(r.Target); err != nil || port == "" {
		return fmt.Errorf("the address %q is not host:port: write for example 127.0.0.1:8081", r.Target)
	}
	for range connections {
		conn, err := r.connect()
		if err != nil {
			return err
		}
		r.conns = append(r.conns, conn)
	}
	return nil
}

// connect returns a new connection, which is opened by its first call.
func (r *runner) connect() (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if r.TLS != nil {
		creds = credentials.NewTLS(r.TLS)
	}
	return grpc.NewClient(r.Target, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(), grpc.WithNoProxy())
}

func (r *runner) close() {
	for _, conn := range r.conns {
		_ = conn.Close()
	}
}

// An answer is the response to a request, or its error.
type answer struct {
	*response
	err       error
	call, ret time.Duration // since the start of the run
}

// send sends a message, which is a request, or bytes with the codec [raw]. The call has a deadline.
func (r *runner) send(ctx context.Context, conn *grpc.ClientConn, message any, options ...grpc.CallOption) answer {
	ctx, cancel := context.WithTimeout(ctx, r.CallTimeout)
	defer cancel()
	a := answer{response: &response{}, call: time.Since(r.started)}
	a.err = conn.Invoke(ctx, method, message, a.response, options...)
	a.ret = time.Since(r.started)
	return a
}

// alive calls the service on a new connection until it answers. After two seconds, or after
// CallTimeout with AllowErrors if that is longer, it returns the last error.
func (r *runner) alive(ctx context.Context) error {
	maximum := 2 * time.Second
	if r.AllowErrors {
		maximum = max(maximum, r.CallTimeout)
	}
	conn, err := r.connect()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for begun := time.Now(); ; {
		a := r.send(ctx, conn, newRequest(newDescriptor("alive", "alive")))
		if !isConnectionLost(a.err) {
			return nil
		}
		if time.Since(begun) > maximum || !sleep(ctx, 100*time.Millisecond) {
			return a.err
		}
		conn.ResetConnectBackoff()
	}
}

// isConnectionLost reports whether err means that the connection failed or the service did not
// answer.
func isConnectionLost(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}

// sleep waits for d. It returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// raw is a codec that sends bytes as they are.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (raw) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(*response)) }

// limit returns the current limit of a status, nil if there is none.
func (a answer) limit(i int) *ratelimitv3.RateLimitResponse_RateLimit {
	if a.err != nil || i >= len(a.GetStatuses()) {
		return nil
	}
	return a.GetStatuses()[i].GetCurrentLimit()
}

func (a answer) isOK() bool { return a.err == nil && a.GetOverallCode() == codeOK }

func (a answer) isOverLimit() bool { return a.err == nil && a.GetOverallCode() == codeOver }

// remaining returns the remaining hits of the first status.
func (a answer) remaining() int64 {
	if a.err != nil || len(a.GetStatuses()) == 0 {
		return -1
	}
	return int64(a.GetStatuses()[0].GetLimitRemaining())
}

// reset returns the time until the reset of the first status.
func (a answer) reset() time.Duration {
	if a.err != nil || len(a.GetStatuses()) == 0 {
		return -1
	}
	return a.GetStatuses()[0].GetDurationUntilReset().AsDuration()
}

// String returns an answer such as "OVER_LIMIT: OVER_LIMIT 5/DAY remaining 0 reset 3600s".
func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("error %s: %s", status.Code(a.err), truncate(status.Convert(a.err).Message(), 200))
	}
	var parts []string
	for i, s := range a.GetStatuses() {
		if i == 4 {
			parts = append(parts, fmt.Sprintf("and %d more", len(a.GetStatuses())-i))
			break
		}
		text := s.GetCode().String()
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %d/%s", l.GetRequestsPerUnit(), l.GetUnit())
		}
		text += fmt.Sprintf(" remaining %d", s.GetLimitRemaining())
		if d := s.GetDurationUntilReset(); d != nil {
			text += " reset " + d.AsDuration().String()
		}
		parts = append(parts, text)
	}
	return a.GetOverallCode().String() + ": " + strings.Join(parts, " | ")
}

// describe returns a request as text, such as "weir_conform [run=1 day_5=x, hits 2]".
func describe(r *request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q", r.GetDomain())
	for i, d := range r.GetDescriptors() {
		if i == 4 {
			fmt.Fprintf(&b, " and %d more", len(r.GetDescriptors())-i)
			break
		}
		b.WriteString(" [")
		for j, e := range d.GetEntries() {
			if j > 0 {
				b.WriteString(" ")
			}
			if j == 8 {
				fmt.Fprintf(&b, "and %d more", len(d.GetEntries())-j)
				break
			}
			fmt.Fprintf(&b, "%s=%s", truncate(e.GetKey(), 60), truncate(e.GetValue(), 60))
		}
		if l := d.GetLimit(); l != nil {
			fmt.Fprintf(&b, ", limit %d/%s", l.GetRequestsPerUnit(), l.GetUnit())
		}
		if h := d.GetHitsAddend(); h != nil {
			fmt.Fprintf(&b, ", hits %d", h.GetValue())
		}
		if d.GetIsNegativeHits() {
			b.WriteString(", negative")
		}
		b.WriteString("]")
	}
	if h := r.GetHitsAddend(); h != 0 {
		fmt.Fprintf(&b, " hits_addend %d", h)
	}
	return b.String()
}

func truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:n], ""), len(text))
}
