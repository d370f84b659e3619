package main

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A reset that fails, or whose caller has left, may have removed some states. The other replicas get both messages.
func TestFailedResetSendsBothMessages(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	options, err := connect.ParseURL(connect.Single, "tcp", redis.Addr)
	if err != nil {
		t.Fatal(err)
	}
	options.Timeout = maxWait
	store := redisstore.New(options, redisstore.Options{})
	defer store.Close()
	messages, err := store.Messages("resets")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	subscription := redis.Client(t).Subscribe(ctx, "w2:resets")
	defer subscription.Close()
	if _, err := subscription.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	r := &resets{messages: messages, log: zap.NewNop()}
	failed := errors.New("the store failed")
	call, leave := context.WithCancel(ctx)
	if _, err := r.resetAndNotify(call, resetMessage{Domain: "ugc", Entry: [2]string{"user_id", "42"}}, func() error { leave(); return failed }); !errors.Is(err, failed) {
		t.Errorf("error %v, want that of the reset", err)
	}
	for i := range 2 {
		if _, err := subscription.ReceiveMessage(ctx); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
	}
}
