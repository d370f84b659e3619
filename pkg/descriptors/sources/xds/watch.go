package xds

import (
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

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// maxDetail is the longest text, in bytes, that a server is told of what is wrong with its push.
const maxDetail = 4096

// again is how long a refusal is held back if the push has been refused before. A server may answer a refusal with the
// same push at once, as go-control-plane does, and the two would keep each other busy for as long as the rules are bad.
var again = Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// A watch is what one Watch knows.
type watch struct {
	*Source
	apply func([]rulesfile.File) error
	long  time.Duration // how long a silent stream must last to have been useful

	version  string // accepted last
	accepted string // the fingerprint of what it held, "" for nothing yet

	refused  string // the version refused last
	refusals int    // of it in a row
}

// connection is one stream from its begin to its end, and tells whether it was of use: it delivered something, or was
// there for long.
func (w *watch) connection(ctx context.Context) (useful bool, err error) {
	conn, err := w.open()
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(patience, func() { cancel(fmt.Errorf("no stream within %v", patience)) })
	defer late.Stop()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).
		StreamAggregatedResources(metadata.NewOutgoingContext(ctx, metadata.New(w.Headers)))
	if !late.Stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("xDS server %q: %w", w.Server, err)
	}
	w.happened(Event{Kind: Connected})
	opened := time.Now()
	to := &conversation{stream: stream}
	to.send(&discovery.DiscoveryRequest{Node: w.node(), TypeUrl: TypeURL, VersionInfo: w.version})
	if w.version != "" {
		stop := to.askAgain(w.version)
		defer func() {
			cancel(nil) // so that nothing it sends can last
			stop()
		}()
	}
	for {
		push, err := to.receive()
		if errors.Is(err, io.EOF) {
			err = errors.New("the server ended the stream")
		}
		if err != nil {
			return useful || time.Since(opened) > w.long, fmt.Errorf("xDS server %q: %w", w.Server, err)
		}
		useful = true
		to.send(w.answer(ctx, push))
	}
}

// answer acknowledges a push, or refuses it.
func (w *watch) answer(ctx context.Context, push *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	version := push.GetVersionInfo()
	files, err := convert(push)
	switch now := rulesfile.Fingerprint(files); {
	case err != nil:
		w.hold(ctx, version)
		w.reject(version, err)
	case now == w.accepted:
		w.accept(Event{Kind: Unchanged, Version: version, Files: len(files)}, now)
	default:
		w.hold(ctx, version)
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

// hold lets time pass before a push that was refused already is looked at once more.
func (w *watch) hold(ctx context.Context, version string) {
	if w.refusals > 0 && w.refused == version {
		_ = sleep(ctx, again.wait(w.refusals-1))
	}
}

func (w *watch) reject(version string, err error) {
	if version != w.refused {
		w.refused, w.refusals = version, 0
	}
	w.refusals++
	w.happened(Event{Kind: Rejected, Version: version, Err: err})
}

func (w *watch) accept(e Event, fingerprint string) {
	w.version, w.accepted = e.Version, fingerprint
	w.refused, w.refusals = "", 0
	w.happened(e)
}

// detail is an error as a server is told: valid in a message, and bounded.
func detail(err error) string {
	text := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(text) <= maxDetail {
		return text
	}
	const more = "\n..."
	return strings.ToValidUTF8(text[:maxDetail-len(more)], "") + more
}
