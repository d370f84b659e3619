package grpcmessage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/must"
)

// A sentStream is a transportStream with all that a client has sent. After it, reads return err.
type sentStream struct {
	grpc.ServerTransportStream
	sent []byte
	err  error
}

func (s *sentStream) RecvCompress() string             { return "" }
func (s *sentStream) WriteStatus(*status.Status) error { return nil }

func (s *sentStream) ReadMessageHeader(header []byte) error { return readHeader(s, header) }

func readHeader(from interface {
	Read(int) (mem.BufferSlice, error)
}, header []byte) error {
	data, err := from.Read(len(header))
	copy(header, data.Materialize())
	return err
}

func (s *sentStream) Read(n int) (mem.BufferSlice, error) {
	switch {
	case n <= len(s.sent):
		piece := mem.SliceBuffer(s.sent[:n])
		s.sent = s.sent[n:]
		return mem.BufferSlice{piece}, nil
	case errors.Is(s.err, io.EOF) && len(s.sent) > 0:
		return nil, io.ErrUnexpectedEOF
	default:
		return nil, s.err
	}
}

// A rawCodec hands the bytes of a message on.
type rawCodec struct{}

func (rawCodec) Name() string                             { return "raw" }
func (rawCodec) Marshal(any) (mem.BufferSlice, error)     { panic("nothing is sent") }
func (rawCodec) Unmarshal(d mem.BufferSlice, v any) error { *v.(*[]byte) = d.Materialize(); return nil }

// contextOf returns the context of a request with the stream.
func contextOf(ctx context.Context, stream *sentStream) context.Context {
	return grpc.NewContextWithServerTransportStream(ctx, stream)
}

func framed(flags byte, size int, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(size)), message...)
}

// A message arrives as it was sent, whatever its size. Every other stream has an error. In the end
// no byte is counted as unfinished.
func TestMessagesOfAnySizeArriveAsSent(t *testing.T) {
	large := bytes.Repeat([]byte("0123456"), maxMessageBytes/7+1)[:maxMessageBytes]
	canceled := status.Error(codes.Canceled, "canceled")
	for name, c := range map[string]struct {
		sent []byte
		err  error // the stream's error after sent
		held int64 // bytes of other unfinished messages
		want error
		size int
	}{
		"empty":                      {framed(0, 0, nil), io.EOF, 0, nil, 0},
		"a byte":                     {framed(0, 1, large[:1]), io.EOF, 0, nil, 1},
		"one piece":                  {framed(0, pieceSize, large[:pieceSize]), io.EOF, 0, nil, pieceSize},
		"one piece and a byte":       {framed(0, pieceSize+1, large[:pieceSize+1]), io.EOF, 0, nil, pieceSize + 1},
		"the largest":                {framed(0, maxMessageBytes, large), io.EOF, 0, nil, maxMessageBytes},
		"larger":                     {framed(0, maxMessageBytes+1, large), io.EOF, 0, errTooLarge, 0},
		"much larger":                {framed(0, 1<<32-1, large), io.EOF, 0, errTooLarge, 0},
		"none":                       {nil, io.EOF, 0, errNoMessage, 0},
		"a part of the prefix":       {framed(0, 1, nil)[:3], io.EOF, 0, errNoMessage, 0},
		"nothing after the prefix":   {framed(0, 1, nil), io.EOF, 0, errCutMessage, 0},
		"a part":                     {framed(0, 3*pieceSize, large[:2*pieceSize+5]), io.EOF, 0, errCutMessage, 0},
		"a part, then canceled":      {framed(0, 3*pieceSize, large[:2*pieceSize+5]), canceled, 0, canceled, 0},
		"canceled":                   {nil, canceled, 0, canceled, 0},
		"whole, then canceled":       {framed(0, 1, large[:1]), canceled, 0, canceled, 0},
		"whole, then a byte":         {append(framed(0, 1, large[:1]), 7), io.EOF, 0, errSecondMessage, 0},
		"two":                        {append(framed(0, 1, large[:1]), framed(0, 1, large[:1])...), io.EOF, 0, errSecondMessage, 0},
		"compressed":                 {framed(1, 1, large[:1]), io.EOF, 0, errFlags, 0},
		"one piece, no room":         {framed(0, pieceSize, large[:pieceSize]), io.EOF, maxUnfinishedBytes, nil, pieceSize},
		"two pieces, no room":        {framed(0, 2*pieceSize, large[:2*pieceSize]), io.EOF, maxUnfinishedBytes, errUnfinished, 0},
		"two pieces, a byte too few": {framed(0, 2*pieceSize, large[:2*pieceSize]), io.EOF, maxUnfinishedBytes - pieceSize + 1, errUnfinished, 0},
		"a late piece, no room":      {framed(0, 2*pieceSize, large[:2*pieceSize-1]), canceled, maxUnfinishedBytes - pieceSize + 1, errUnfinished, 0},
		"two pieces, room":           {framed(0, 2*pieceSize, large[:2*pieceSize]), io.EOF, maxUnfinishedBytes - pieceSize, nil, 2 * pieceSize},
		"three pieces, room for two": {framed(0, 3*pieceSize, large[:3*pieceSize]), io.EOF, maxUnfinishedBytes - pieceSize, errUnfinished, 0},
	} {
		r := Receiver{Codec: rawCodec{}}
		r.unfinished.Store(c.held)
		var got []byte
		err := r.Receive(contextOf(t.Context(), &sentStream{sent: c.sent, err: c.err}), &got)
		if !errors.Is(err, c.want) || err == nil && !bytes.Equal(got, large[:c.size]) {
			t.Errorf("%s: %d bytes, %v, want %d and %v", name, len(got), err, c.size, c.want)
		}
		if status.Code(err) == codes.Internal {
			t.Errorf("%s: INTERNAL, which means a bug in Weir", name)
		}
		if n := r.unfinished.Load(); n != c.held {
			t.Errorf("%s: afterwards %d bytes are unfinished, want %d", name, n, c.held)
		}
	}
}

// A request past its deadline, or without its client, is not received.
func TestExpiredOrCanceledRequestIsNotDecoded(t *testing.T) {
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	gone, leave := context.WithCancel(t.Context())
	leave()
	for ctx, want := range map[context.Context]codes.Code{late: codes.DeadlineExceeded, gone: codes.Canceled} {
		stream := &sentStream{sent: framed(0, 0, nil), err: io.EOF}
		r := Receiver{Codec: rawCodec{}}
		err := r.Receive(contextOf(ctx, stream), new([]byte))
		if len(stream.sent) == 0 {
			t.Error("the message was received")
		}
		if status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestUnknownTransportStreamIsInternalError(t *testing.T) {
	r := Receiver{Codec: rawCodec{}}
	err := r.Receive(grpc.NewContextWithServerTransportStream(t.Context(), struct{ grpc.ServerTransportStream }{}), new([]byte))
	if status.Code(err) != codes.Internal {
		t.Errorf("%v, want INTERNAL", err)
	}
}

func TestCheckFindsAnUnknownTransportStream(t *testing.T) {
	must.Succeed(t, CheckTransport(t.Context()))
	unknown := grpc.NewContextWithServerTransportStream(t.Context(), struct{ grpc.ServerTransportStream }{})
	err := checkTransport(t.Context(), grpc.StreamInterceptor(
		func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(service, &watchStream{ServerStream: stream, ctx: unknown})
		}))
	if err == nil || err.Error() != status.Convert(errTransport).Message() {
		t.Errorf("%v, want %v", err, errTransport)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	must.Succeed(t, CheckTransport(ended))
}

// A request ends with DEADLINE_EXCEEDED if its message, or a part of the message, does not arrive.
// Requests before it do not matter.
func TestPartialRequestsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Receiver{Codec: rawCodec{}}
		for range 3 {
			whole := &sentStream{sent: framed(0, 0, nil), err: io.EOF}
			must.Succeed(t, r.Receive(contextOf(t.Context(), whole), new([]byte)))
			for _, sent := range [][]byte{nil, framed(0, 1, nil), framed(0, 2*pieceSize, make([]byte, pieceSize))} {
				stream := &blockedStream{sentStream: sentStream{sent: sent}, ended: make(chan *status.Status, 1)}
				start := time.Now()
				err := r.Receive(grpc.NewContextWithServerTransportStream(t.Context(), stream), new([]byte))
				if took := time.Since(start); status.Code(err) != codes.DeadlineExceeded || took != messageTimeout {
					t.Errorf("%d bytes: %v after %v, want DEADLINE_EXCEEDED after %v", len(sent), err, took, messageTimeout)
				}
			}
		}
	})
}

// The client already has DEADLINE_EXCEEDED, so the request must not be charged.
func TestMessageOfAStreamThatEndedLateIsNotDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &slowStream{sentStream{sent: framed(0, 0, nil), err: io.EOF}}
		r := Receiver{Codec: rawCodec{}}
		err := r.Receive(grpc.NewContextWithServerTransportStream(t.Context(), stream), new([]byte))
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%v, want DEADLINE_EXCEEDED", err)
		}
	})
}

// A slowStream has its message just after the timeout.
type slowStream struct{ sentStream }

func (s *slowStream) ReadMessageHeader(header []byte) error {
	time.Sleep(messageTimeout + time.Nanosecond)
	return s.sentStream.ReadMessageHeader(header)
}

// A blockedStream waits for more than was sent until it gets a status.
type blockedStream struct {
	sentStream
	ended chan *status.Status
}

func (s *blockedStream) ReadMessageHeader(header []byte) error { return readHeader(s, header) }

func (s *blockedStream) Read(n int) (mem.BufferSlice, error) {
	if n > len(s.sent) {
		return nil, (<-s.ended).Err()
	}
	return s.sentStream.Read(n)
}

func (s *blockedStream) WriteStatus(st *status.Status) error {
	s.ended <- st
	return nil
}
