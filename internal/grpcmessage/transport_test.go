package grpcmessage

import (
	"context"
	"errors"
	"testing"
)

// The check accepts the grpc-go of go.mod and reports a stream whose type is unknown.
func TestCheckTransport(t *testing.T) {
	if err := CheckTransport(); err != nil {
		t.Errorf("with the version in go.mod: %v", err)
	}
	err := checkTransport(func(context.Context) error { return errTransport })
	if !errors.Is(err, errTransport) {
		t.Errorf("with an unknown type: got %v, want %v", err, errTransport)
	}
}
