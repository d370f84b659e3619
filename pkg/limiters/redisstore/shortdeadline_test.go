package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A client that gives up early costs other clients nothing: the connection to Redis stays open. Its hits are not charged if they
// reach Redis too late.
func TestShortDeadlinesKeepTheConnection(t *testing.T) {
	t.Parallel()
	const roundTrip = 20 * time.Millisecond
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Addr: redistest.SlowProxy(t, server.Addr, roundTrip)})
	hit := limiters.Hit{Key: "k", Limit: hourly, N: 1}
	if _, err := take(t, s, hit); err != nil {
		t.Fatal(err)
	}
	connected := scriptConnection(t, server)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), roundTrip/4)
		var out [1]limiters.Verdict
		err := s.Take(ctx, time.Time{}, limiters.Singles(hit), out[:])
		if cancel(); err == nil && out[0].Err == nil {
			t.Fatalf("a hit with a deadline of %v is decided after a round trip of %v: %+v", roundTrip/4, roundTrip, out[0])
		}
	}
	v, err := take(t, s, hit)
	if err != nil || v[0].Used != 2 {
		t.Errorf("%+v, %v, want 2 used: late hits are not charged", v, err)
	}
	if now := scriptConnection(t, server); now != connected {
		t.Errorf("the script runs on connection %s, and ran on %s before the short deadlines", now, connected)
	}
}

// scriptConnection returns the server's id of the connection that runs the script.
func scriptConnection(t *testing.T, server *redistest.Server) string {
	t.Helper()
	text, err := server.Client(t).ClientList(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "cmd=evalsha") {
			id, _, _ := strings.Cut(line, " ")
			return id
		}
	}
	return "none"
}
