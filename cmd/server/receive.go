package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Weir reads the messages of requests from the stream of grpc-go's transport, because the decode function that grpc-go passes to a
// handler lacks three bounds:
//
//   - Time: a handler waits for its message as long as the client likes, because only the client sets a deadline.
//   - Memory: MaxRecvMsgSize bounds each message. The unfinished messages of one connection held 550 MB, and each further
//     connection as much again.
//   - Compression: grpc-go inflates a message before the handler can reject it.
const (
	// maxMessage is the size of the largest rate limit request, in bytes. Envoy repeats client data in every descriptor, and rejecting a
	// large request could let a client bypass its limit.
	maxMessage = 4 << 20
	// maxOtherMessage is the size of the largest request of other services, in bytes. These requests hold a name.
	maxOtherMessage = 64 << 10
	// pieceSize is the size of the pieces in which a message is received, in bytes. An ordinary request has one piece.
	pieceSize = 4 << 10
	// maxUnfinished bounds the bytes of all messages that have arrived in part. The first piece of a message does not count, so
	// unfinished messages cannot make Weir reject ordinary requests.
	maxUnfinished = 64 << 20
	// messageTimeout bounds the wait for a message after the headers of its request.
	messageTimeout = 10 * time.Second
	// maxUntimed is the number of requests that may wait for their messages without a timer. Messages usually arrive with their
	// headers, so under normal load no request pays for a timer.
	maxUntimed = 8
)

var (
	// grpc-go uses INTERNAL for most of these faults of a client. Weir uses INTERNAL only for its own bugs.
	errNoMessage     = status.Error(codes.InvalidArgument, "the request ended before its message")
	errCutMessage    = status.Error(codes.InvalidArgument, "the request ended within its message")
	errSecondMessage = status.Error(codes.InvalidArgument, "the request has more than one message")
	errFlags         = status.Error(codes.InvalidArgument, "the message has flags of a compressed message, but the request has no grpc-encoding")

	errTooLarge   = status.Errorf(codes.ResourceExhausted, "the message is larger than %d bytes", maxMessage)
	errUnfinished = status.Errorf(codes.ResourceExhausted, "unfinished messages of all requests have more than %d bytes", maxUnfinished)
	errCompressed = status.Error(codes.Unimplemented, "compressed messages are not supported: send the message without grpc-encoding")

	errMessageTimeout = status.New(codes.DeadlineExceeded, "the message did not arrive within 10s of its headers")
	errTransport      = status.Error(codes.Internal, "the transport of grpc-go has changed: build Weir with the version in its go.mod")
)

// A transportStream has the methods that Weir uses of the stream of a request in grpc-go's transport. The stream's type is internal to
// grpc-go. The errors of its methods are io.EOF, io.ErrUnexpectedEOF and statuses.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	WriteStatus(*status.Status) error
}

// uncompressedStream returns the stream of a request whose message is not compressed. Envoy never compresses, and 4 kB can inflate to
// 4 MiB, so one client could keep all CPUs busy.
func uncompressedStream(ctx context.Context) (transportStream, error) {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	if !ok {
		return nil, errTransport
	}
	if by := stream.RecvCompress(); by != "" && by != encoding.Identity {
		return nil, errCompressed
	}
	return stream, nil
}

// checkTransport returns an error if the streams of this build's grpc-go are no transportStreams. It makes a health check in memory.
func checkTransport() error {
	listener := bufconn.Listen(pieceSize)
	server := grpc.NewServer()
	healthv1.RegisterHealthServer(boundedServer{server}, health.NewServer())
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Stop()
	serving.Go(func() { _ = server.Serve(listener) })
	client, err := grpc.NewClient("passthrough:weir", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), messageTimeout)
	defer cancel()
	_, err = healthv1.NewHealthClient(client).Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return fmt.Errorf("grpc-go: %s", status.Convert(err).Message())
	}
	return nil
}

// abortIfLate starts a timer that ends the stream with errMessageTimeout after messageTimeout. The caller stops the timer. Only the
// status of a stream interrupts a Read of it.
func abortIfLate(stream transportStream) *time.Timer {
	return time.AfterFunc(messageTimeout, func() { _ = stream.WriteStatus(errMessageTimeout) })
}

// A receiver receives the messages of rate limit requests in bounded time and memory.
type receiver struct {
	codec      encoding.CodecV2
	waiting    atomic.Int64 // requests without their messages
	unfinished atomic.Int64 // bytes; see maxUnfinished
}

// receive receives the only message of a request.
func (r *receiver) receive(ctx context.Context, message any) error {
	stream, err := uncompressedStream(ctx)
	if err != nil {
		return err
	}
	defer r.waiting.Add(-1)
	if r.waiting.Add(1) > maxUntimed {
		defer abortIfLate(stream).Stop()
	}
	header := make([]byte, 5) // a byte of flags, and the size of the message
	err = stream.ReadMessageHeader(header)
	if err != nil {
		return ended(err, errNoMessage)
	}
	size := binary.BigEndian.Uint32(header[1:])
	switch {
	case header[0] != 0:
		return errFlags
	case size > maxMessage:
		return errTooLarge
	}
	data, reserved, err := r.readPieces(stream, int(size))
	defer func() {
		if reserved > 0 {
			r.unfinished.Add(-reserved)
		}
		data.Free()
	}()
	if err != nil {
		return ended(err, errCutMessage)
	}
	err = stream.ReadMessageHeader(header)
	switch {
	case err == nil:
		return errSecondMessage
	case !errors.Is(err, io.EOF):
		return ended(err, errSecondMessage)
	}
	return r.codec.Unmarshal(data, message)
}

// readPieces reads size bytes. It copies the pieces of a large message, because grpc-go needs some 80 bytes for each DATA frame, and a
// frame may have one byte. Before it waits for a piece after the first, it reserves the piece's bytes in r.unfinished. The caller
// releases what was reserved, also after an error.
func (r *receiver) readPieces(stream transportStream, size int) (data mem.BufferSlice, reserved int64, err error) {
	if size <= pieceSize {
		data, err = stream.Read(size)
		return data, 0, err
	}
	defer abortIfLate(stream).Stop()
	for left := size; left > 0; left -= pieceSize {
		n := min(left, pieceSize)
		if left < size {
			reserved += int64(n)
			if r.unfinished.Add(int64(n)) > maxUnfinished {
				return data, reserved, errUnfinished
			}
		}
		piece, err := stream.Read(n)
		if err != nil {
			return data, reserved, err
		}
		data = append(data, mem.SliceBuffer(piece.Materialize()))
		piece.Free()
	}
	return data, reserved, nil
}

// ended returns atEOF if err means that the client has ended the stream, and otherwise err.
func ended(err, atEOF error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return atEOF
	}
	return err
}
