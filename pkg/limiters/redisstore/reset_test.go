package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

func TestKeyNamesAreParsed(t *testing.T) {
	tag := func(key string) string { return key[:len(key)/2] }
	for _, n := range []keyNamer{{}, {keyPrefix: "weir:"}, {tag: tag}, {keyPrefix: "a{b}*", tag: tag}} {
		for _, key := range []string{"1:d|4:user*1:a", "{", "}", "a}b{c", "3{abc}", "}}2{", "k"} {
			name := n.key(&limiters.Op{Key: key, Limit: hourly})
			for _, suffix := range keySuffixes {
				if got, ok := n.parse(name + suffix); !ok || got != key {
					t.Errorf("%q: %q %v, want %q", name+suffix, got, ok, key)
				}
			}
		}
	}
	n := keyNamer{keyPrefix: "weir:"}
	hashed := keyNamer{keyPrefix: "weir:", hasher: newKeyHasher("a secret of 16 bytes")}
	for _, name := range []string{"", "weir:w2", "weir:w1{k}f1", "weir:w2k", "weir:w2x{k}f1", "weir:w29{k}f1", hashed.key(&limiters.Op{Key: "k", Limit: hourly})} {
		if key, ok := n.parse(name); ok {
			t.Errorf("%q is the name of %q", name, key)
		}
	}
}

func FuzzKeyNames(f *testing.F) {
	f.Add("1:d|4:user*1:a", "d", "weir:")
	f.Add("}{", "}", "{")
	f.Fuzz(func(t *testing.T, key, tag, prefix string) {
		n := keyNamer{keyPrefix: prefix, tag: func(string) string { return tag }}
		name := n.key(&limiters.Op{Key: key, Limit: hourly})
		if got, ok := n.parse(name); key != "" && (!ok || got != key) {
			t.Errorf("parse(%q): got %q, %t, want %q, true", name, got, ok, key)
		}
		_, _ = keyNamer{}.parse(key)
	})
}

// fillTens charges n keys, every tenth with the text "ten".
func fillTens(t *testing.T, s *testStore, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var ops []limiters.Op
		for i := from; i < min(n, from+1000); i++ {
			text := "one"
			if i%10 == 0 {
				text = "ten"
			}
			ops = append(ops, limiters.Op{Key: fmt.Sprintf("1:d|1:k*%s%d", text, i), Limit: hourly, Hits: 1})
		}
		if _, err := take(s, ops...); err != nil {
			t.Fatal(err)
		}
	}
}

func isTen(key string) bool { return strings.Contains(key, "ten") }

// A call visits a bounded number of keys, and a pass continues on any replica.
func TestResetMatchingIsBoundedAndResumable(t *testing.T) {
	server := redistest.Start(t)
	first, second := open(t, server), open(t, server)
	const n = 25_000
	fillTens(t, first, n)
	must.Succeed(t, server.Client(t).Set(context.Background(), "another's key with ten", "x", 0).Err())
	var all limiters.Progress
	calls := 0
	for stores := []*testStore{first, second}; calls == 0 || all.Cursor != ""; calls++ {
		done, err := stores[calls%2].ResetMatching(context.Background(), isTen, all.Cursor)
		must.Succeed(t, err)
		if done.Scanned > scanKeys+2*scanCount {
			t.Errorf("one call scanned %d keys, want about %d", done.Scanned, scanKeys)
		}
		all = limiters.Progress{Scanned: all.Scanned + done.Scanned, Reset: all.Reset + done.Reset, Cursor: done.Cursor}
	}
	if all.Reset != n/10 || all.Scanned < n || calls < 3 {
		t.Errorf("%+v in %d calls, want %d of %d", all, calls, n/10, n)
	}
	if remaining := server.Client(t).DBSize(context.Background()).Val(); remaining != n-n/10+1 {
		t.Errorf("%d keys remain, want %d", remaining, n-n/10+1)
	}
	// The last one is that of a cluster, which a single Redis must not take for the end of a pass.
	for _, cursor := range []string{"x", "%", "LTEg", "MQ", "MCAxMC4wLjAuMTo2Mzc5"} {
		if _, err := first.ResetMatching(context.Background(), isTen, cursor); !errors.Is(err, limiters.ErrCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// The keys of one SCAN are removed in one round trip, so that a pass over a distant Redis returns a
// cursor before its client gives up.
func TestResetMatchingOverADistantRedis(t *testing.T) {
	server := redistest.Start(t)
	const n = scanCount
	fillTens(t, open(t, server), n)
	s := newTestStore(connect.Options{Addr: redistest.SlowProxy(t, server.Addr, 200*time.Millisecond), Timeout: time.Minute}, Options{})
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), n*200*time.Millisecond/3)
	defer cancel()
	for first, cursor := true, ""; first || cursor != ""; first = false {
		done, err := s.ResetMatching(ctx, func(string) bool { return true }, cursor)
		must.Succeed(t, err)
		cursor = done.Cursor
	}
	if remaining := server.Client(t).DBSize(t.Context()).Val(); remaining != 0 {
		t.Errorf("%d keys remain of %d", remaining, n)
	}
}

func TestResetMatchingCoversACluster(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	s := openCluster(t, c)
	const n = 3000
	fillTens(t, s, n)
	if all := limiterstest.MustResetMatching(t, s, isTen); all.Reset != n/10 || all.Scanned < n {
		t.Errorf("%+v, want %d of %d", all, n/10, n)
	}
	if all := limiterstest.MustResetMatching(t, s, isTen); all.Reset != 0 {
		t.Errorf("a second pass: %+v", all)
	}
}

func TestResetOfAnUnreachableRedisIsAnError(t *testing.T) {
	server := redistest.Start(t)
	s := newTestStore(connect.Options{Addr: server.Addr, Timeout: time.Second}, Options{})
	defer s.Close()
	server.Stop()
	if _, err := s.Reset(context.Background(), []limiters.StateName{hourly.StateName("k")}); err == nil {
		t.Error("no error")
	}
	if _, err := s.ResetMatching(context.Background(), isTen, ""); err == nil {
		t.Error("no error")
	}
}

// Messages reach every replica, even after a lost connection. Under a secret, Redis sees only
// sealed ones.
func TestMessagesReachEveryReplica(t *testing.T) {
	server := redistest.Start(t)
	for name, secret := range map[string]string{"without a secret": "", "with a secret": "a secret of 16 bytes"} {
		t.Run(name, func(t *testing.T) {
			o := Options{KeyPrefix: "weir:", KeySecret: secret}
			pubSub := func() *PubSub {
				s := newTestStore(connect.Options{Addr: server.Addr, Timeout: longTimeout}, o)
				t.Cleanup(func() { _ = s.Close() })
				p, err := s.PubSub("resets")
				must.Succeed(t, err)
				return p
			}
			ctx, cancel := context.WithCancel(context.Background())
			connected, got, ended := make(chan int, 10), make(chan string, 10), make(chan error, 2)
			var connections atomic.Int64
			for i := range 2 {
				p := pubSub()
				go func() {
					for {
						err := p.Receive(ctx, func() { connections.Add(1); connected <- i }, func(text []byte) { got <- string(text) })
						if ctx.Err() != nil {
							ended <- err
							return
						}
					}
				}()
			}
			<-connected
			<-connected
			raw := server.Client(t).Subscribe(ctx, "weir:w2:resets")
			if _, err := raw.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			sender := pubSub()
			publish := func(text string) {
				t.Helper()
				must.Succeed(t, sender.Publish(ctx, []byte(text)))
				if a, b := <-got, <-got; a != text || b != text {
					t.Errorf("received %q and %q, want %q", a, b, text)
				}
			}
			publish("user alice")
			seen, err := raw.ReceiveMessage(ctx)
			if err != nil || strings.Contains(seen.Payload, "alice") != (secret == "") {
				t.Errorf("Redis sees %q, %v", seen.Payload, err)
			}
			if secret != "" {
				must.Succeed(t, server.Client(t).Publish(ctx, "weir:w2:resets", "forged alice").Err())
			}
			must.Succeed(t, server.Client(t).ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
			<-connected
			<-connected
			publish("after a lost connection")
			cancel()
			for range 2 {
				if err := <-ended; err == nil || bytes.Contains([]byte(err.Error()), []byte("alice")) {
					t.Error(err)
				}
			}
		})
	}
}
