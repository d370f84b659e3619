package grpcmessage

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The check accepts the grpc-go of go.mod and reports a stream whose type is unknown. A check that
// did not end in time, because the machine stood still, does not keep Weir from starting.
func TestCheckTransport(t *testing.T) {
	if err := CheckTransport(); err != nil {
		t.Errorf("with the version in go.mod: %v", err)
	}
	checked := errors.New("no request was checked")
	if err := checkTransport(func(ctx context.Context) error {
		_, checked = uncompressedStream(ctx)
		return checked
	}); err != nil || checked != nil {
		t.Errorf("with the version in go.mod: %v, the stream: %v", err, checked)
	}
	for fault, want := range map[error]error{
		errTransport: errTransport,
		status.Error(codes.DeadlineExceeded, "too late"): nil,
	} {
		if err := checkTransport(func(context.Context) error { return fault }); !errors.Is(err, want) {
			t.Errorf("after the error %v: got %v, want %v", fault, err, want)
		}
	}
}
