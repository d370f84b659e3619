package conform_test

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/conform"
	"github.com/weir-rls/weir/pkg/decide"
)

type (
	request  = ratelimitv3.RateLimitRequest
	response = ratelimitv3.RateLimitResponse
	call     = func(*request) (*response, error)
)

// A faulty server is Weir with a fault in front of it.
type faulty struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	next   ratelimitv3.RateLimitServiceClient
	answer func(r *request, next call) (*response, error)
}

func (f *faulty) ShouldRateLimit(ctx context.Context, r *request) (*response, error) {
	return f.answer(r, func(r *request) (*response, error) { return f.next.ShouldRateLimit(ctx, r) })
}

const (
	codeOK   = ratelimitv3.RateLimitResponse_OK
	codeOver = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// keyOf returns a text of the first descriptor's entries.
func keyOf(r *request) string {
	var b strings.Builder
	for _, d := range r.GetDescriptors() {
		for _, e := range d.GetEntries() {
			b.WriteString(e.GetKey() + "=" + e.GetValue() + " ")
		}
	}
	return b.String()
}

// hitsOf returns the hits of the first descriptor.
func hitsOf(r *request) uint64 {
	if h := r.GetDescriptors()[0].GetHitsAddend(); h != nil {
		return h.GetValue()
	}
	return max(1, uint64(r.GetHitsAddend()))
}

// only reports whether a request has one descriptor that is under a rule of a limit.
func only(r *request) bool {
	return len(r.GetDescriptors()) == 1 && len(r.GetDescriptors()[0].GetEntries()) == 2
}

// withHits returns a copy of a request of one descriptor, with other hits.
func withHits(r *request, n uint64) *request {
	r = proto.CloneOf(r)
	r.Descriptors[0].HitsAddend, r.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(n), false
	return r
}

func allow(a *response, remaining uint64) *response {
	a.OverallCode, a.Statuses[0].Code, a.Statuses[0].LimitRemaining = codeOK, codeOK, uint32(remaining)
	return a
}

// overAdmitsByOne allows the first denied hit of each key.
func overAdmitsByOne() func(*request, call) (*response, error) {
	var seen sync.Map
	return func(r *request, next call) (*response, error) {
		a, err := next(r)
		if err != nil || a.GetOverallCode() != codeOver || !only(r) {
			return a, err
		}
		if _, before := seen.LoadOrStore(keyOf(r), true); before {
			return a, nil
		}
		return allow(a, 0), nil
	}
}

// readsThenWrites checks a charge and charges it in two steps.
func readsThenWrites(r *request, next call) (*response, error) {
	if !only(r) || r.GetDescriptors()[0].GetIsNegativeHits() || hitsOf(r) == 0 {
		return next(r)
	}
	a, err := next(withHits(r, 0))
	remaining := uint64(0)
	if err == nil && len(a.GetStatuses()) == 1 {
		remaining = uint64(a.GetStatuses()[0].GetLimitRemaining())
	}
	time.Sleep(200 * time.Microsecond)
	n := hitsOf(r)
	if a, err = next(withHits(r, n)); err != nil || remaining < n {
		return a, err
	}
	return allow(a, remaining-n), nil
}

// losesRefunds answers a refund without doing it, while another call is under way if busy.
func losesRefunds(busy bool) func(*request, call) (*response, error) {
	var running atomic.Int64
	return func(r *request, next call) (*response, error) {
		others := running.Add(1) > 1
		defer running.Add(-1)
		if d := r.GetDescriptors(); len(d) != 1 || !d[0].GetIsNegativeHits() || busy && !others {
			if busy {
				time.Sleep(200 * time.Microsecond)
			}
			return next(r)
		}
		a, err := next(withHits(r, 0))
		if err == nil {
			s := a.Statuses[0]
			return allow(a, min(uint64(s.GetLimitRemaining())+hitsOf(r), uint64(s.GetCurrentLimit().GetRequestsPerUnit()))), nil
		}
		return a, err
	}
}

// resetBy changes the reset of each status.
func resetBy(change func(time.Duration) time.Duration) func(*request, call) (*response, error) {
	return func(r *request, next call) (*response, error) {
		a, err := next(r)
		for _, s := range a.GetStatuses() {
			if s.GetDurationUntilReset() != nil {
				s.DurationUntilReset = durationpb.New(change(s.GetDurationUntilReset().AsDuration()))
			}
		}
		return a, err
	}
}

// lateMinutes shifts the resets of limits per minute by 20 s. An hour that ends in less than a
// minute keeps its reset, so that the test sees the same at any time of day.
func lateMinutes(r *request, next call) (*response, error) {
	a, err := next(r)
	for _, s := range a.GetStatuses() {
		if s.GetCurrentLimit().GetUnit() == ratelimitv3.RateLimitResponse_RateLimit_MINUTE {
			late := s.GetDurationUntilReset().AsDuration() + 20*time.Second
			s.DurationUntilReset = durationpb.New((late-time.Second)%time.Minute + time.Second)
		}
	}
	return a, err
}

// halfWindows ends windows of a second after half a second.
func halfWindows(r *request, next call) (*response, error) {
	if only(r) && strings.Contains(keyOf(r), "second_10") {
		r = proto.CloneOf(r)
		r.Descriptors[0].Entries[0].Value += time.Now().Truncate(500 * time.Millisecond).String()
	}
	return next(r)
}

// lateWindows denies all hits of each window's first 300 ms.
func lateWindows(r *request, next call) (*response, error) {
	if only(r) && strings.Contains(keyOf(r), "second_10") && time.Now().Nanosecond() < 3e8 {
		return next(withHits(r, 1000))
	}
	return next(r)
}

func reversed(r *request, next call) (*response, error) {
	a, err := next(r)
	slices.Reverse(a.GetStatuses())
	return a, err
}

// sharesCounters joins the entries with their keys to one text.
func sharesCounters(r *request, next call) (*response, error) {
	r = proto.CloneOf(r)
	for _, d := range r.GetDescriptors() {
		if len(d.GetEntries()) == 3 && d.GetEntries()[2].GetKey() == "below" && d.GetEntries()[1].GetKey() == "joined" {
			e := d.Entries[1]
			e.Value += "_below_" + d.Entries[2].GetValue()
			d.Entries = d.Entries[:2]
		}
	}
	return next(r)
}

// chargesPeeks charges one hit for a request of none.
func chargesPeeks(r *request, next call) (*response, error) {
	if only(r) && hitsOf(r) == 0 {
		return next(withHits(r, 1))
	}
	return next(r)
}

// wraps reads hits as a number of 32 bits.
func wraps(r *request, next call) (*response, error) {
	if only(r) && !r.GetDescriptors()[0].GetIsNegativeHits() {
		return next(withHits(r, uint64(uint32(hitsOf(r)))))
	}
	return next(r)
}

// lenient is a codec that ignores what it cannot read.
type lenient struct{}

func (lenient) Name() string                  { return "proto" }
func (lenient) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (lenient) Unmarshal(data []byte, v any) error {
	m := v.(*request)
	if proto.Unmarshal(data, m) != nil {
		m.Domain, m.Descriptors = "lenient", []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}}
	}
	return nil
}

// startFaulty starts Weir behind a fault.
func startFaulty(t *testing.T, answer func(*request, call) (*response, error), options ...grpc.ServerOption) (target string, stop func()) {
	t.Helper()
	if answer == nil {
		answer = func(r *request, next call) (*response, error) { return next(r) }
	}
	conn, err := grpc.NewClient(weir(t, decide.Options{}), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	next := ratelimitv3.NewRateLimitServiceClient(conn)
	var server *grpc.Server
	target = serve(t, listen(t), func(s *grpc.Server) {
		server = s
		ratelimitv3.RegisterRateLimitServiceServer(s, &faulty{next: next, answer: answer})
	}, options...)
	return target, func() { server.Stop() }
}

// Each fault is found by the checks that ask for it, and by no other of those that run.
func TestChecksDetectFaults(t *testing.T) {
	t.Parallel()
	const sequential, concurrent = `^(protocol|semantics|crash)`, `^(semantics\.counts|counting)`
	for name, c := range map[string]struct {
		answer  func(*request, call) (*response, error)
		options []grpc.ServerOption
		only    string
		want    []string
	}{
		"none":                 {nil, nil, sequential + "|" + concurrent, nil},
		"over-admits by one":   {overAdmitsByOne(), nil, `semantics.(counts|depth)|counting.exact`, []string{"semantics.counts", "counting.exact.fixed_window"}},
		"reads, then writes":   {readsThenWrites, nil, `^counting.(exact|linearizable)`, []string{"counting.exact.fixed_window", "counting.linearizable.fixed_window"}},
		"loses refunds":        {losesRefunds(false), nil, `semantics.(refund|peek$|counts)`, []string{"semantics.refund"}},
		"loses refunds, busy":  {losesRefunds(true), nil, `semantics.refund|counting`, []string{"counting.refunds.fixed_window"}},
		"reset is constant":    {resetBy(func(time.Duration) time.Duration { return time.Second }), nil, `semantics.(reset$|counts)`, []string{"semantics.reset"}},
		"reset is 100 s late":  {resetBy(func(d time.Duration) time.Duration { return d + 100*time.Second }), nil, `semantics.(reset$|counts)`, []string{"semantics.reset"}},
		"minutes begin late":   {lateMinutes, nil, `semantics.(reset|counts)`, []string{"semantics.reset_alignment"}},
		"windows are short":    {halfWindows, nil, `turns|semantics.counts`, []string{"turns.second.fixed_window"}},
		"windows begin late":   {lateWindows, nil, `turns|semantics.counts`, []string{"turns.second.fixed_window"}},
		"statuses reversed":    {reversed, nil, `protocol`, []string{"protocol.statuses"}},
		"counters are shared":  {sharesCounters, nil, `semantics.(counters|counts|pairs)`, []string{"semantics.counters"}},
		"peeks charge":         {chargesPeeks, nil, `semantics.(peek|counts)`, []string{"semantics.peek"}},
		"hits wrap at 2^32":    {wraps, nil, `crash.hits|semantics.hits`, []string{"crash.hits_32_bit", "crash.hits_64_bit"}},
		"malformed is allowed": {nil, []grpc.ServerOption{grpc.ForceServerCodec(lenient{})}, `protocol`, []string{"protocol.malformed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, _ := startFaulty(t, c.answer, c.options...)
			// A busy machine sends too few calls at once, or within a window, to find each fault in
			// every run.
			for deadline := time.Now().Add(2 * time.Minute); ; {
				report, err := conform.Run(t.Context(), busy(target, c.only))
				must.Succeed(t, err)
				if report.Failed >= len(c.want) || time.Now().After(deadline) {
					compare(t, report, c.want)
					return
				}
				t.Logf("again: %s", report.Summary())
			}
		})
	}
}

// busy returns the options of a run on a busy machine.
func busy(target, only string) conform.Options {
	return conform.Options{Target: target, Only: regexp.MustCompile(only), Timeout: 10 * time.Minute, CallTimeout: time.Minute}
}

// compare fails the test unless the report has these failures, each with evidence.
func compare(t *testing.T, report conform.Report, want []string) {
	t.Helper()
	var failed []string
	for _, r := range report.Checks {
		if r.Outcome == conform.Fail {
			failed = append(failed, r.ID)
			if r.Evidence[0].Fault == "" || len(r.Evidence) > 5 {
				t.Errorf("%s has the evidence %+v", r.ID, r.Evidence)
			}
		}
		if r.Outcome == conform.Fail && !slices.Contains(want, r.ID) {
			t.Log(r.Text())
		}
	}
	if !slices.Equal(failed, want) || report.Failed != len(want) {
		t.Errorf("failed %v, want %v", failed, want)
	}
}

func TestCrashIsFoundAndEndsTheRun(t *testing.T) {
	t.Parallel()
	stop := func() {}
	target, stopServer := startFaulty(t, func(r *request, next call) (*response, error) {
		for _, d := range r.GetDescriptors() {
			if d.GetLimit() != nil && d.GetLimit().GetUnit() == 0 {
				stop()
				return nil, status.Error(codes.Unavailable, "the process ends")
			}
		}
		return next(r)
	})
	stop = func() {
		go stopServer() // it waits for the connection of this call
		for {
			conn, err := net.Dial("tcp", target)
			if err != nil {
				return
			}
			_ = conn.Close()
			time.Sleep(time.Millisecond)
		}
	}
	report, err := conform.Run(t.Context(), busy(target, `crash\.override|semantics.counts`))
	must.Succeed(t, err)
	compare(t, report, []string{"crash.override_unit_unknown"})
	last := report.Checks[len(report.Checks)-1]
	if last.ID != "crash.override_unit_undefined" || last.Outcome != conform.Skipped || !strings.Contains(last.Reason, "crash.override_unit_unknown") {
		t.Errorf("the last result is %+v, want it skipped", last)
	}
}

// A check that ends early stops the load that it has started, so later checks measure the service
// without it.
func TestMalformedLoadStopsWithItsCheck(t *testing.T) {
	t.Parallel()
	var malformed, errs atomic.Int64
	target, _ := startFaulty(t, func(r *request, next call) (*response, error) {
		if strings.Contains(keyOf(r), "day_1000") { // the call during the load waits until the load has begun
			for begun := time.Now(); malformed.Load() == 0 && time.Since(begun) < time.Second; {
				time.Sleep(time.Millisecond)
			}
			if malformed.Load() > 0 && errs.Add(1) == 1 {
				return nil, status.Error(codes.ResourceExhausted, "shed")
			}
		}
		return next(r)
	}, grpc.ForceServerCodec(counting{&malformed}))
	o := busy(target, `clients.(malformed|many_calls)`)
	ended := map[string]int64{}
	o.Done = func(r conform.Result) { ended[r.ID] = malformed.Load() }
	report, err := conform.Run(t.Context(), o)
	must.Succeed(t, err)
	compare(t, report, []string{"clients.malformed_load"})
	if before, after := ended["clients.malformed_load"], ended["clients.many_calls"]; before == 0 || after != before {
		t.Errorf("%d malformed messages when the check ended, and %d after the next check", before, after)
	}
}

// counting is a codec that counts the messages that it cannot read.
type counting struct{ malformed *atomic.Int64 }

func (counting) Name() string                  { return "proto" }
func (counting) Marshal(v any) ([]byte, error) { return proto.Marshal(v.(proto.Message)) }
func (c counting) Unmarshal(data []byte, v any) error {
	err := proto.Unmarshal(data, v.(proto.Message))
	if err != nil {
		c.malformed.Add(1)
	}
	return err
}

// A server with few connections leaves none for others while clients send nothing.
func TestChecksDetectSilentConnections(t *testing.T) {
	t.Parallel()
	l := netutil.LimitListener(listen(t), 30)
	target := serveWeir(t, l, decide.Options{})
	report, err := conform.Run(t.Context(), conform.Options{
		Target: target, CallTimeout: 10 * time.Second, Timeout: 10 * time.Minute, Only: regexp.MustCompile(`clients.(silent|malformed)`),
	})
	must.Succeed(t, err)
	compare(t, report, []string{"clients.silent_connections"})
}

// A correct service with a long latency passes, although 100 of its calls take longer than the
// timeout of one.
func TestSlowServiceServesOtherClients(t *testing.T) {
	t.Parallel()
	target, _ := startFaulty(t, func(r *request, next call) (*response, error) {
		if strings.Contains(keyOf(r), "day_1000") {
			time.Sleep(50 * time.Millisecond)
		}
		return next(r)
	})
	o := busy(target, `clients.silent`)
	o.CallTimeout = 2 * time.Second
	report, err := conform.Run(t.Context(), o)
	must.Succeed(t, err)
	compare(t, report, nil)
}

// A check of windows passes no service whose calls take too long to be placed in a window.
func TestWindowsOfASlowServiceAreNotGraded(t *testing.T) {
	t.Parallel()
	target, _ := startFaulty(t, func(r *request, next call) (*response, error) {
		a, err := next(r)
		if err == nil && strings.Contains(keyOf(r), "second_10") {
			time.Sleep(450 * time.Millisecond)
			return allow(a, 5), nil
		}
		return a, err
	})
	report, err := conform.Run(t.Context(), busy(target, `turns.second`))
	must.Succeed(t, err)
	if r := report.Checks[0]; r.Outcome != conform.Skipped || !strings.Contains(r.Reason, "calls take too long") {
		t.Errorf("%+v, want it skipped", r)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return l
}

// A choice that the protocol leaves to a service is observed, and fails no check.
func TestChoicesOfAServiceFailNoCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options decide.Options
		want    string
	}{
		"charges each": {decide.Options{}, "yes: a denied request is charged to the limits that allow it"},
		"all or none":  {decide.Options{AllOrNothing: true}, "no: a request is charged to all of its limits or to none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := conform.Run(t.Context(), busy(weir(t, c.options), `group`))
			must.Succeed(t, err)
			compare(t, report, nil)
			if r := report.Checks[0]; r.Outcome != conform.Observation || !slices.Contains(r.Observations, c.want) {
				t.Errorf("%+v, want the observation %q", r, c.want)
			}
		})
	}
}
