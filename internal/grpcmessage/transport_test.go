package grpcmessage

import (
	"context"
	"errors"
	"testing"
)

// The check accepts the grpc-go of go.mod and reports a stream whose type is unknown.
func TestCheckTransport(t *testing.T) {
	if err := CheckTransport(t.Context()); err != nil {
		t.Errorf("with the version in go.mod: %v", err)
	}
	err := checkTransport(t.Context(), func(context.Context) error { return errTransport })
	if !errors.Is(err, errTransport) {
		t.Errorf("with an unknown type: got %v, want %v", err, errTransport)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckTransport(ctx); err == nil {
		t.Error("with a canceled context: got no error")
	}
}
