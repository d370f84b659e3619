package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// maxDetailBytes bounds the error text in a rejection.
const maxDetailBytes = 4096

// rejectionWaits delays repeated rejections of a version. Some servers, such as those of
// go-control-plane, answer a rejection with the same push immediately, which would be a busy loop.
var rejectionWaits = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// A watch is the state of one call of Watch.
type watch struct {
	*Source
	load  func([]rulesfile.File, error) error
	waits backoff.Backoff

	version  string // last accepted
	accepted string // fingerprint of the last accepted files; "" initially, and after load has rejected a push

	rejected   string // the last rejected version
	rejections int    // consecutive rejections of that version
}

// A connectionResult determines the wait before the next connection.
type connectionResult int

const (
	unreachable connectionResult = iota // no stream was opened
	silent                              // a stream was opened, and ended soon without a push
	useful                              // a stream brought a push, or lasted longer than the maximum wait
)

// runStream opens a stream and handles its pushes until it ends.
func (w *watch) runStream(ctx context.Context) (connectionResult, error) {
	conn, err := w.open()
	if err != nil {
		return unreachable, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := cmp.Or(w.connectTimeout, defaultConnectTimeout)
	late := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("no stream within %v", timeout)) })
	defer late.Stop()
	client, err := discovery.NewAggregatedDiscoveryServiceClient(conn).
		StreamAggregatedResources(metadata.NewOutgoingContext(ctx, metadata.New(w.Headers)))
	if !late.Stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return unreachable, fmt.Errorf("control plane %q: %w", w.Server, err)
	}
	w.notify(Event{Kind: Connected})
	opened := time.Now()
	s := &stream{AggregatedDiscoveryService_StreamAggregatedResourcesClient: client}
	s.send(&discovery.DiscoveryRequest{Node: w.node(), TypeUrl: TypeURL, VersionInfo: w.version})
	if w.version != "" || w.accepted != "" || w.HasRules != nil && w.HasRules() {
		stop := s.requestAll(w.version, cmp.Or(w.replyTimeout, defaultReplyTimeout))
		defer func() {
			cancel(nil) // ends a Send that blocks
			stop()
		}()
	}
	result := silent
	for {
		push, err := s.receive()
		if errors.Is(err, io.EOF) {
			err = errors.New("the server ended the stream")
		}
		if err != nil {
			if time.Since(opened) > w.waits.Max {
				result = useful
			}
			return result, fmt.Errorf("control plane %q: %w", w.Server, err)
		}
		result = useful
		s.send(w.handle(ctx, push))
	}
}

// handle loads a push and returns its acknowledgement or rejection.
func (w *watch) handle(ctx context.Context, push *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	version := push.GetVersionInfo()
	files, err := convert(push)
	switch now := rulesfile.Fingerprint(files); {
	case err == nil && now == w.accepted:
		w.accept(Event{Kind: Unchanged, Version: version, Files: len(files)}, now)
	default:
		w.waitBeforeRepeat(ctx, version)
		if err = w.load(files, err); err != nil {
			// The caller has reported a fault, and may put these files in force later. So it must
			// hear of a return to the files before them.
			w.accepted = ""
			w.reject(version, err)
			break
		}
		w.accept(Event{Kind: Accepted, Version: version, Files: len(files)}, now)
	}
	request := &discovery.DiscoveryRequest{VersionInfo: w.version, ResponseNonce: push.GetNonce(), TypeUrl: TypeURL}
	if err != nil {
		request.ErrorDetail = status.New(codes.InvalidArgument, detail(err)).Proto()
	}
	return request
}

// waitBeforeRepeat delays the next answer if version has been rejected before.
func (w *watch) waitBeforeRepeat(ctx context.Context, version string) {
	if w.rejections > 0 && w.rejected == version {
		_ = backoff.Sleep(ctx, rejectionWaits.Wait(w.rejections-1))
	}
}

func (w *watch) reject(version string, err error) {
	if version != w.rejected {
		w.rejected, w.rejections = version, 0
	}
	w.rejections++
	w.notify(Event{Kind: Rejected, Version: version, Err: err})
}

func (w *watch) accept(e Event, fingerprint string) {
	w.version, w.accepted = e.Version, fingerprint
	w.rejected, w.rejections = "", 0
	w.notify(e)
}

// detail returns err as valid UTF-8 of at most maxDetailBytes.
func detail(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxDetailBytes {
		return text
	}
	const more = "\n..."
	return strings.ToValidUTF8(text[:maxDetailBytes-len(more)], "") + more
}
