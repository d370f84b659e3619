package main

import (
	"encoding/binary"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

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
)

var (
	// grpc-go uses INTERNAL for most of these faults of a client. Weir uses INTERNAL only for its own bugs.
	errNoMessage     = status.Error(codes.InvalidArgument, "the request ended before its message")
	errCutMessage    = status.Error(codes.InvalidArgument, "the request ended within its message")
	errSecondMessage = status.Error(codes.InvalidArgument, "the request has more than one message")
	errFlags         = status.Error(codes.InvalidArgument, "the message has flags of a compressed message, but the request has no grpc-encoding")

	errTooLarge   = status.Errorf(codes.ResourceExhausted, "the message is larger than %d bytes", maxMessage)
	errUnfinished = status.Errorf(codes.ResourceExhausted, "unfinished messages of all requests have more than %d bytes", maxUnfinished)
)

// A messageStream is the stream of a request in grpc-go. Its errors are io.EOF, io.ErrUnexpectedEOF and statuses.
type messageStream interface {
	ReadMessageHeader(header []byte) error
	Read(n int) (mem.BufferSlice, error)
}

// A messageReader receives messages in bounded memory. A message of several pieces must arrive within messageTimeout. grpc-go would
// buffer up to maxMessage bytes for each stream.
type messageReader struct {
	codec      encoding.CodecV2
	unfinished atomic.Int64 // bytes; see maxUnfinished
}

// read receives the only message of a stream into message.
func (r *messageReader) read(stream messageStream, message any) error {
	header := make([]byte, 5)
	if err := stream.ReadMessageHeader(header); err != nil {
		return ended(err, errNoMessage)
	}
	size := binary.BigEndian.Uint32(header[1:])
	switch {
	case header[0] != 0:
		return errFlags
	case size > maxMessage:
		return errTooLarge
	}
	var reserved int64
	defer func() {
		if reserved > 0 {
			r.unfinished.Add(-reserved)
		}
	}()
	data, err := r.readPieces(stream, int(size), &reserved)
	defer data.Free()
	if err != nil {
		return ended(err, errCutMessage)
	}
	switch err := stream.ReadMessageHeader(header); {
	case err == nil:
		return errSecondMessage
	case !errors.Is(err, io.EOF):
		return ended(err, errSecondMessage)
	}
	return r.codec.Unmarshal(data, message)
}

// readPieces reads size bytes. It copies the pieces of a large message, because grpc-go needs some 80 bytes for each DATA frame,
// and a frame may have one byte. It adds to reserved the bytes that it has counted in r.unfinished, also if it returns an error.
func (r *messageReader) readPieces(stream messageStream, size int, reserved *int64) (mem.BufferSlice, error) {
	if size <= pieceSize {
		return stream.Read(size)
	}
	defer abortIfLate(stream).Stop()
	var data mem.BufferSlice
	for left := size; left > 0; left -= pieceSize {
		n := min(left, pieceSize)
		if left < size {
			*reserved += int64(n)
			if r.unfinished.Add(int64(n)) > maxUnfinished {
				return data, errUnfinished
			}
		}
		piece, err := stream.Read(n)
		if err != nil {
			return data, err
		}
		data = append(data, mem.SliceBuffer(piece.Materialize()))
		piece.Free()
	}
	return data, nil
}

// ended returns atEOF if err means that the client has ended the stream, and otherwise err.
func ended(err, atEOF error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return atEOF
	}
	return err
}
