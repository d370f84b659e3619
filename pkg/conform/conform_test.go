package conform_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/conform"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/rls"
)

// serve serves on a listener until the test ends.
func serve(t *testing.T, l net.Listener, register func(*grpc.Server), options ...grpc.ServerOption) (target string) {
	t.Helper()
	server := grpc.NewServer(options...)
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
	return l.Addr().String()
}

// newWeir returns Weir with the rules of fixed windows, in memory and with a deny cache, as on
// Redis.
func newWeir(t *testing.T, o decide.Options) *rls.Service {
	t.Helper()
	text, err := conform.Rules(nil)
	must.Succeed(t, err)
	rules := rulesfiletest.Parse(t, text)
	store := guard.NewDenyCache(memstore.New(memstore.Options{}), guard.DenyCacheOptions{})
	t.Cleanup(func() { _ = store.Close(context.Background()) })
	return rls.New(decide.New(func() *descriptors.Rules { return rules }, store, o), rls.Options{})
}

func weir(t *testing.T, o decide.Options) (target string) {
	t.Helper()
	return serveWeir(t, listen(t), o)
}

func serveWeir(t *testing.T, l net.Listener, o decide.Options) (target string) {
	t.Helper()
	service := newWeir(t, o)
	return serve(t, l, func(s *grpc.Server) {
		receiver := grpcmessage.Receiver{Codec: rls.Codec()}
		s.RegisterService(service.ServiceDesc(receiver.Receive, admission.NewGate(1000)), service)
	}, grpc.ForceServerCodecV2(rls.Codec()))
}

// The race detector makes the search in histories slow, so e2e/conform runs the checks of all
// algorithms.
func TestWeirInThisProcessConforms(t *testing.T) {
	t.Parallel()
	report, err := conform.Run(t.Context(), busy(weir(t, decide.Options{}), ""))
	must.Succeed(t, err)
	for _, r := range report.Checks {
		if r.Outcome == conform.Fail || testing.Verbose() {
			t.Log(r.Text())
		}
	}
	if report.Failed > 0 || report.Passed == 0 {
		t.Error(report.Summary())
	}
}

// A run that ends early skips the checks that have not finished. It blames no service for its own
// end.
func TestUnfinishedChecksAreSkippedNotFailed(t *testing.T) {
	t.Parallel()
	target := weir(t, decide.Options{})
	for ran, deadline := 0, time.Now().Add(2*time.Minute); ran < 3; {
		report, err := conform.Run(t.Context(), conform.Options{Target: target, Only: regexp.MustCompile("reset$|linear"), Timeout: 700 * time.Millisecond})
		if err != nil && strings.Contains(err.Error(), "does not answer") && time.Now().Before(deadline) {
			continue // a busy machine had no time for the first answer
		}
		ran++
		if !errors.Is(err, conform.ErrTimeout) {
			t.Fatalf("%v, want ErrTimeout: %s", err, report.Summary())
		}
		if i := slices.IndexFunc(report.Checks, func(r conform.Result) bool { return r.ID == "semantics.reset" }); report.Failed > 0 || report.Checks[i].Outcome != conform.Skipped {
			t.Errorf("%+v, want no failed check, and semantics.reset skipped", report.Checks)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	o := conform.Options{Target: target, Done: func(conform.Result) { cancel() }}
	if report, err := conform.Run(ctx, o); !errors.Is(err, context.Canceled) || report.Failed > 0 {
		t.Errorf("after a cancellation: %v, %s", err, report.Summary())
	}
}
