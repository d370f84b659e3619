package redisprobe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// proberOf returns a prober of the Redis at addr, and its log.
func proberOf(t *testing.T, addr string, timeout time.Duration) (*Prober, *observer.ObservedLogs) {
	t.Helper()
	c, err := connect.ParseURL(connect.Single, "", addr)
	must.Succeed(t, err)
	c.Timeout, c.DialTimeout = time.Minute, time.Minute
	store := redisstore.New(c, redisstore.Options{})
	t.Cleanup(func() { must.Succeed(t, store.Close()) })
	core, logged := observer.New(zap.InfoLevel)
	return &Prober{Store: store, Timeout: timeout, Log: zap.New(core)}, logged
}

func TestAwaitReturnsOnceRedisAnswersInTime(t *testing.T) {
	addr := redistest.FreeAddr(t)
	p, logged := proberOf(t, addr, time.Minute)
	awaited := make(chan error, 1)
	go func() { awaited <- p.Await(t.Context()) }()
	must.Until(t, "a failure", func() bool { return logged.FilterMessage("redis does not answer").Len() > 0 })
	redis, err := redistest.Run(addr)
	must.Succeed(t, err)
	t.Cleanup(redis.Stop)
	must.Succeed(t, <-awaited)
	if logged.FilterMessage("redis answers").Len() != 1 {
		t.Errorf("logged %v, want one line that Redis answers", logged.All())
	}
}

func TestEvictionIsWarnedOfUnlessRuledOut(t *testing.T) {
	const mayEvict, hidden = "redis may evict counters", "redis hides whether it may evict counters"
	for _, c := range []struct {
		name, policy string
		acl          []string // of Weir's user
		want         string   // the warning
	}{
		{"noeviction", "noeviction", nil, ""},
		{"an evicting Redis", "allkeys-lru", nil, mayEvict},
		{"an evicting Redis that forbids INFO", "allkeys-lru", []string{"-info"}, hidden},
		{"noeviction that INFO cannot show", "noeviction", []string{"-info"}, hidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, "--maxmemory-policy", c.policy)
			server.SetUser(t, "weir", append([]string{"on", ">secret", "~*", "+@all"}, c.acl...)...)
			p, logged := proberOf(t, "redis://weir:secret@"+server.Addr, time.Minute)
			must.Succeed(t, p.Await(t.Context()))
			var warnings []string
			for _, line := range logged.All() {
				if line.Level == zap.WarnLevel {
					warnings = append(warnings, line.Message)
				}
			}
			if got := strings.Join(warnings, ", "); got != c.want {
				t.Errorf("logged the warnings %q, want %q", got, c.want)
			}
		})
	}
}

func TestSlowRedisIsNotReady(t *testing.T) {
	p, logged := proberOf(t, redistest.Start(t).Addr, 0)
	if err := p.Check(t.Context()); !errors.Is(err, errRoundTripTooLong) {
		t.Errorf("got error %v, want that the round trip is too long", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	awaited := make(chan error, 1)
	go func() { awaited <- p.Await(ctx) }()
	must.Until(t, "a failure", func() bool { return logged.FilterMessage("redis answers too late").Len() > 0 })
	cancel()
	if err := <-awaited; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want that of the context", err)
	}
}
