package admission

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// messageTimeout is the longest time between a request's headers and the end of its message.
	messageTimeout = 10 * time.Second
	// untimed is how many requests without a deadline of their own may wait for their messages without a timer. In ordinary
	// traffic fewer wait, because a message comes with its headers, and no request pays for a timer.
	untimed = 64
)

// ErrLate is the error of a request whose message has not arrived in time.
var ErrLate = errors.New("the message did not arrive within 10s of its headers")

// Arrivals bounds the time in which the messages of requests arrive. Each request must pass through Context when its
// headers have arrived, and then through Receive.
type Arrivals struct {
	waiting atomic.Int64 // requests without a deadline of their own, between Context and the end of Receive
	timers  atomic.Int64 // that were neither stopped nor have fired
}

type timerKey struct{}

// Context returns a context for the request of ctx that ends if the message is late.
func (a *Arrivals) Context(ctx context.Context) context.Context {
	if deadline, ok := ctx.Deadline(); ok {
		if time.Until(deadline) <= messageTimeout {
			return ctx
		}
	} else if a.waiting.Add(1) <= untimed {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	a.timers.Add(1)
	timer := time.AfterFunc(messageTimeout, func() {
		a.timers.Add(-1)
		cancel(ErrLate)
	})
	return context.WithValue(ctx, timerKey{}, timer)
}

// Receive fills message by calling receive, unless ctx has ended. The error is ErrLate, that of ctx, or that of receive.
func (a *Arrivals) Receive(ctx context.Context, receive func(message any) error, message any) error {
	defer a.received(ctx)
	err := ctx.Err()
	if err == nil {
		err = receive(message)
	}
	if err != nil && errors.Is(context.Cause(ctx), ErrLate) {
		return ErrLate
	}
	return err
}

func (a *Arrivals) received(ctx context.Context) {
	if _, ok := ctx.Deadline(); !ok {
		a.waiting.Add(-1)
	}
	if a.timers.Load() == 0 {
		return
	}
	if timer, ok := ctx.Value(timerKey{}).(*time.Timer); ok && timer.Stop() {
		a.timers.Add(-1)
	}
}
