// Package grpcmessage receives the messages of gRPC requests in bounded time and memory.
//
// A [Receiver] reads large messages, such as rate limit requests, from the streams of grpc-go's
// transport. The decode function that grpc-go passes to a handler lacks three bounds:
//
//   - Time: a handler waits for its message as long as the client likes, because only the client
//     sets a deadline.
//   - Memory: MaxRecvMsgSize bounds each message. The unfinished messages of one connection held
//     550 MB, and each further connection as much again.
//   - Compression: grpc-go inflates a message before the handler can reject it, because the
//     exporter of traces registers gzip for the whole process.
//
// Services with small messages, such as health checks, keep their decode functions: [ServerOptions]
// and [Registrar] bound them.
package grpcmessage

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

const (
	// maxMessageBytes bounds a message of a Receiver. Envoy repeats client data in every
	// descriptor, and rejecting a large request could let a client bypass its limit.
	maxMessageBytes = 4 << 20
	// pieceSize is the size of the pieces in which a message is received, in bytes. An ordinary
	// request has one piece.
	pieceSize = 4 << 10
	// maxUnfinishedBytes bounds the bytes of all messages that have arrived in part. The first
	// piece of a message does not count, so unfinished messages cannot make Weir reject ordinary
	// requests.
	maxUnfinishedBytes = 64 << 20
	// messageTimeout bounds the wait for a message after the headers of its request.
	messageTimeout = 10 * time.Second
)

var (
	// grpc-go uses INTERNAL for most of these faults of a client. Weir uses INTERNAL only for its
	// own bugs.
	errNoMessage     = status.Error(codes.InvalidArgument, "the request ended before its message")
	errCutMessage    = status.Error(codes.InvalidArgument, "the request ended within its message")
	errSecondMessage = status.Error(codes.InvalidArgument, "the request has more than one message")
	errFlags         = status.Error(codes.InvalidArgument, "the message is marked as compressed, but the request has no grpc-encoding")

	errTooLarge   = status.Errorf(codes.ResourceExhausted, "the message is larger than %d bytes", maxMessageBytes)
	errUnfinished = status.Errorf(codes.ResourceExhausted, "the unfinished messages of all requests together exceed %d bytes", maxUnfinishedBytes)
	errCompressed = status.Error(codes.Unimplemented, "compressed messages are not supported: send the message without grpc-encoding")

	errTimeout   = status.Newf(codes.DeadlineExceeded, "the message did not arrive within %v of its headers", messageTimeout)
	errTransport = status.Error(codes.Internal, "the transport of grpc-go has changed: build Weir with the version in its go.mod")
)

// A transportStream is the stream of a request in grpc-go's transport, with the methods that Weir
// calls. The stream's type is internal to grpc-go (ADR 18). The errors of its methods are io.EOF,
// io.ErrUnexpectedEOF and statuses.
type transportStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
	RecvCompress() string
	WriteStatus(*status.Status) error
}

// uncompressedStream returns the stream of a request whose message is not compressed. Envoy never
// compresses, and 4 kB can inflate to 4 MiB, so one client could keep all CPUs busy.
func uncompressedStream(ctx context.Context) (transportStream, error) {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(transportStream)
	if !ok {
		return nil, errTransport
	}
	if name := stream.RecvCompress(); name != "" && name != encoding.Identity {
		return nil, errCompressed
	}
	return stream, nil
}

// A Receiver receives the messages of unary requests, of up to 4 MiB each. Together, messages that
// have arrived in part take at most 64 MiB. A Receiver is safe for concurrent use, and must not be
// copied after the first use.
type Receiver struct {
	Codec encoding.CodecV2 // decodes messages; required

	streams    sync.Pool    // holds *timedStream
	unfinished atomic.Int64 // bytes; see maxUnfinishedBytes
}

// A timedStream is a stream that its timer ends with errTimeout. With a new timer for each request,
// a decision in memory needs about 6 % more CPU than with the pool (ADR 18).
type timedStream struct {
	transportStream
	timer  *time.Timer
	header [5]byte // of a message: a byte of flags, and the size of the message
}

// startTimer starts a new timer, which ends the stream with errTimeout. The caller stops the timer.
// Only the status of a stream interrupts a Read of it.
func startTimer(stream transportStream) *timedStream {
	t := &timedStream{transportStream: stream} // before the timer, because the process may be frozen in between
	t.timer = time.AfterFunc(messageTimeout, func() { _ = t.WriteStatus(errTimeout) })
	return t
}

// start starts a timer from the pool, or a new one.
func (r *Receiver) start(stream transportStream) *timedStream {
	if t, found := r.streams.Get().(*timedStream); found {
		t.transportStream = stream
		t.timer.Reset(messageTimeout)
		return t
	}
	return startTimer(stream)
}

// stop stops the timer. It reports whether the timer is too late to stop, so that Reads of the
// stream are canceled.
func (r *Receiver) stop(t *timedStream) (late bool) {
	if !t.timer.Stop() {
		return true
	}
	t.transportStream = nil
	r.streams.Put(t)
	return false
}

// Receive receives the only message of the request with ctx, which a gRPC server has passed to the
// handler. The handler must not call its decode function. The error has the status that the client
// should get. If ctx has ended, Receive reads nothing.
func (r *Receiver) Receive(ctx context.Context, message any) (err error) {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	stream, err := uncompressedStream(ctx)
	if err != nil {
		return err
	}
	timed := r.start(stream)
	defer func() {
		if late := r.stop(timed); late {
			err = errTimeout.Err()
		}
	}()
	return r.read(timed, message)
}

// read reads the only message of a stream.
func (r *Receiver) read(stream *timedStream, message any) error {
	header := stream.header[:]
	err := stream.ReadMessageHeader(header)
	if err != nil {
		return replaceEOF(err, errNoMessage)
	}
	size := binary.BigEndian.Uint32(header[1:])
	switch {
	case header[0] != 0:
		return errFlags
	case size > maxMessageBytes:
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
		return replaceEOF(err, errCutMessage)
	}
	err = stream.ReadMessageHeader(header)
	switch {
	case err == nil:
		return errSecondMessage
	case !errors.Is(err, io.EOF):
		return replaceEOF(err, errSecondMessage)
	}
	return r.Codec.Unmarshal(data, message)
}

// readPieces reads size bytes. It copies the pieces of a large message, because grpc-go needs some
// 80 bytes for each DATA frame, and a frame may have one byte. Before it waits for a piece after
// the first, it reserves the piece's bytes in r.unfinished. The caller releases what was reserved,
// also after an error.
func (r *Receiver) readPieces(stream transportStream, size int) (data mem.BufferSlice, reserved int64, err error) {
	if size <= pieceSize {
		data, err = stream.Read(size)
		return data, 0, err
	}
	for remaining := size; remaining > 0; remaining -= pieceSize {
		n := min(remaining, pieceSize)
		if remaining < size {
			reserved += int64(n)
			if r.unfinished.Add(int64(n)) > maxUnfinishedBytes {
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

// replaceEOF returns atEOF if err means that the client has ended the stream, and otherwise err.
func replaceEOF(err, atEOF error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return atEOF
	}
	return err
}
