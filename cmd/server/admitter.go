package main

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/pkg/rls"
)

const (
	// messageTimeout is the longest time between a request's headers and the end of its message.
	messageTimeout = 10 * time.Second
	// untimed is how many requests may wait for their messages without a timer. In ordinary traffic fewer wait, because a
	// message comes with its headers, and no request pays for a timer.
	untimed = 64
)

var errLate = status.New(codes.DeadlineExceeded, "the message did not arrive within 10s of its headers")

// An admitter admits requests by gRPC once their messages have arrived. It bounds the time in which they arrive.
type admitter struct {
	*admission.InFlight
	service *rls.Service
	waiting atomic.Int64 // requests without their messages
}

// Receive implements rls.Admission. A request whose context has ended is not received. A request that is too large is
// observed, because Envoy may let it pass.
func (a *admitter) Receive(ctx context.Context, decode func(any) error, message any) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if err := a.await(ctx, decode, message); err != nil {
		if code := status.Code(err); code != codes.Canceled && code != codes.DeadlineExceeded {
			a.service.ObserveRejected(err)
		}
		return err
	}
	if err := a.Enter(); err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	return nil
}

// await calls decode. If the message is late, it ends the stream, and decode returns.
func (a *admitter) await(ctx context.Context, decode func(any) error, message any) error {
	defer a.waiting.Add(-1)
	if a.waiting.Add(1) > untimed {
		defer time.AfterFunc(messageTimeout, func() { endLate(ctx) }).Stop()
	}
	return decode(message)
}

// endLate ends the stream of a request with errLate. In grpc-go, only the status of a stream ends a wait for its message, and
// only the stream itself can send the status before the handler returns.
func endLate(ctx context.Context) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if s, ok := stream.(interface{ WriteStatus(*status.Status) error }); ok {
		_ = s.WriteStatus(errLate)
	}
}
