package main

import (
	"context"

	"github.com/weir-rls/weir/internal/admission"
	"github.com/weir-rls/weir/internal/grpcmessage"
	"github.com/weir-rls/weir/pkg/rls"
)

// An admitter implements [rls.Admission] for gRPC: it receives a message, and then applies load
// shedding.
type admitter struct {
	*admission.Gate
	service  *rls.Service
	receiver grpcmessage.Receiver
}

func newAdmitter(gate *admission.Gate, service *rls.Service) *admitter {
	return &admitter{Gate: gate, service: service, receiver: grpcmessage.Receiver{Codec: rls.Codec()}}
}

// Receive implements [rls.Admission]. It observes a request that ends before its message is
// decoded, because Envoy's failure mode may let that request pass.
func (a *admitter) Receive(ctx context.Context, _ func(any) error, request rls.PendingRequest) error {
	if err := a.receiver.Receive(ctx, request); err != nil {
		a.service.ObserveUndecoded(err)
		return err
	}
	return a.Admit(request.MayRefund)
}
