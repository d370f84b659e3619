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

// maxDetail is the maximum length of the error text that a server is sent, in bytes.
const maxDetail = 4096

// rejectionWaits are the waits before a push is rejected again. A server such as go-control-plane may answer a rejection with
// the same push at once. Without a wait, client and server would run at full speed for as long as the rules are bad.
var rejectionWaits = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// A watch is the state of one Watch.
type watch struct {
	*Source
	apply func([]rulesfile.File) error
	waits backoff.Backoff

	version  string // accepted last
	accepted string // fingerprint of the files accepted last, "" before the first

	rejected   string // the version rejected last
	rejections int    // of that version in a row
}

// An outcome is the result of a connection.
type outcome int

const (
	unreachable outcome = iota // no stream was opened
	silent                     // a stream was opened, and ended soon without a push
	useful                     // a stream brought a push, or lasted longer than the maximum wait
)

// connection opens one stream and handles its pushes until it ends.
func (w *watch) connection(ctx context.Context) (outcome, error) {
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
		return unreachable, fmt.Errorf("xDS server %q: %w", w.Server, err)
	}
	w.notify(Event{Kind: Connected})
	opened := time.Now()
	s := &stream{AggregatedDiscoveryService_StreamAggregatedResourcesClient: client}
	s.send(&discovery.DiscoveryRequest{Node: w.node(), TypeUrl: TypeURL, VersionInfo: w.version})
	if w.version != "" {
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
			return result, fmt.Errorf("xDS server %q: %w", w.Server, err)
		}
		result = useful
		s.send(w.handle(ctx, push))
	}
}

// handle applies a push and returns the request that acknowledges or rejects it.
func (w *watch) handle(ctx context.Context, push *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	version := push.GetVersionInfo()
	files, err := convert(push)
	switch now := rulesfile.Fingerprint(files); {
	case err != nil:
		w.waitBeforeRepeat(ctx, version)
		w.reject(version, err)
	case now == w.accepted:
		w.accept(Event{Kind: Unchanged, Version: version, Files: len(files)}, now)
	default:
		w.waitBeforeRepeat(ctx, version)
		if err = w.apply(files); err != nil {
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

// waitBeforeRepeat waits if the version was rejected before.
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

// detail returns the text of err as valid UTF-8 of at most maxDetail bytes.
func detail(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxDetail {
		return text
	}
	const more = "\n..."
	return strings.ToValidUTF8(text[:maxDetail-len(more)], "") + more
}
