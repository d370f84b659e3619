package conform

import (
	"context"
	"fmt"
	"runtime"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A trial is a check in progress. It collects the result.
type trial struct {
	*runner
	ctx context.Context
	Result
}

// runUntilStop runs a check on its own goroutine, and returns when the check returns or calls stop.
func (t *trial) runUntilStop(run func(*trial)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(t)
	}()
	<-done
}

// stop ends the check by ending its goroutine. It must be called on that goroutine.
func (t *trial) stop() { runtime.Goexit() }

func (t *trial) skip(reason string) { t.Reason = reason }

func (t *trial) observe(format string, values ...any) {
	t.Observations = append(t.Observations, fmt.Sprintf(format, values...))
}

// fault fails the check.
func (t *trial) fault(e Evidence) {
	if len(t.Evidence) < maxEvidence {
		t.Evidence = append(t.Evidence, e)
	}
}

// wrong fails the check with a request and its answer.
func (t *trial) wrong(r *request, got answer, fault, expected string) {
	t.fault(Evidence{Fault: fault, Request: describe(r), Answer: got.String(), Expected: expected})
}

// uniqueName returns a value that no other key of any run has.
func (t *trial) uniqueName() string {
	t.count++
	return fmt.Sprintf("%s-%d", t.id, t.count)
}

// key returns a descriptor whose counter is unused, under a rule.
func (t *trial) key(rule string) *descriptor { return newDescriptor("run", t.uniqueName(), rule, "v") }

// newDescriptor returns a descriptor with entries, given as pairs of key and value.
func newDescriptor(pairs ...string) *descriptor {
	d := &descriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func newRequest(all ...*descriptor) *request {
	return &request{Domain: Domain, Descriptors: all}
}

// withHits returns a copy of a descriptor that charges n hits.
func withHits(d *descriptor, n uint64) *descriptor {
	d = proto.CloneOf(d)
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// asRefund returns a copy of a descriptor that refunds n hits.
func asRefund(d *descriptor, n uint64) *descriptor {
	d = withHits(d, n)
	d.IsNegativeHits = true
	return d
}

// withLimit returns a copy of a descriptor that carries its own limit.
func withLimit(d *descriptor, n uint32, unit typev3.RateLimitUnit) *descriptor {
	d = proto.CloneOf(d)
	d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	return d
}

// call sends a request on the first connection.
func (t *trial) call(r *request) answer { return t.send(t.ctx, t.conns[0], r) }

// callOne sends one descriptor. A gRPC error ends the check.
func (t *trial) callOne(d *descriptor) answer { return t.answered(newRequest(d)) }

// answered sends a request. A gRPC error fails and ends the check.
func (t *trial) answered(r *request) answer {
	a := t.call(r)
	if a.err != nil {
		t.wrong(r, a, "the request gets an error", "an answer")
		t.stop()
	}
	return a
}

// expect sends a request, and fails the check if the answer differs from the expectation.
func (t *trial) expect(r *request, expected string, as func(answer) bool) {
	if a := t.answered(r); !as(a) {
		t.wrong(r, a, "the answer is wrong", expected)
	}
}

// expectAllowed expects OK with the remaining hits.
func (t *trial) expectAllowed(d *descriptor, remaining int64) {
	t.expect(newRequest(d), fmt.Sprintf("OK with remaining %d", remaining),
		func(a answer) bool { return a.isOK() && a.remaining() == remaining })
}

// expectDenied expects OVER_LIMIT.
func (t *trial) expectDenied(d *descriptor) {
	t.expect(newRequest(d), "OVER_LIMIT", answer.isOverLimit)
}

// expectUnlimited expects OK without a limit.
func (t *trial) expectUnlimited(d *descriptor) {
	t.expect(newRequest(d), "OK without a limit", func(a answer) bool { return a.isOK() && a.limit(0) == nil })
}

// expectLimit expects an answer under a limit of that many requests.
func (t *trial) expectLimit(d *descriptor, n uint32) {
	t.expect(newRequest(d), fmt.Sprintf("a limit of %d", n), func(a answer) bool { return a.limit(0).GetRequestsPerUnit() == n })
}

// steady waits until no window of a day will end within d.
func (t *trial) steady(d time.Duration) {
	var a answer
	t.withRetries(func() error {
		a = t.call(newRequest(t.key("day_1000")))
		return a.err
	})
	if untilReset := a.reset(); untilReset > 0 && untilReset < d && !sleep(t.ctx, untilReset+time.Second) {
		t.skip("a window of a day was about to end")
		t.stop()
	}
}

// conn returns one of the shared connections.
func (t *trial) conn(i int) *grpc.ClientConn { return t.conns[i%len(t.conns)] }
