package redistest

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/relay"
)

// A Proxy is a proxy in front of a Redis. It can cut the connection after Redis has run a script
// and before the reply.
type Proxy struct {
	Addr string

	mu    sync.Mutex
	redis string
	delay time.Duration // added to each request
	cuts  bool
	calls int
}

// NewProxy starts a proxy that ends with the test.
func NewProxy(tb testing.TB) *Proxy {
	tb.Helper()
	p := &Proxy{}
	p.Addr = relay.Start(tb, p.target, p.wrap)
	return p
}

// SlowProxy starts a proxy in front of a Redis that adds roundTrip to each round trip. It returns
// its address. The proxy ends with the test.
func SlowProxy(tb testing.TB, addr string, roundTrip time.Duration) string {
	tb.Helper()
	p := NewProxy(tb)
	p.SetTarget(addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = roundTrip
	return p.Addr
}

// SetTarget sets the address of the Redis for new connections.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redis = addr
}

func (p *Proxy) target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.redis
}

// Cut sets whether to cut a connection when Redis replies to a script.
func (p *Proxy) Cut(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts = is
}

// Calls returns the number of scripts that were sent through the proxy.
func (p *Proxy) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// wrap counts the scripts of a connection, delays its requests, and cuts it.
func (p *Proxy) wrap(redis, client io.Writer) (requests, replies io.Writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &counted{proxy: p, delay: p.delay, pieces: make(chan piece, 1024)}
	c.writing.Go(func() {
		for p := range c.pieces {
			time.Sleep(time.Until(p.due))
			_, _ = redis.Write(p.data)
		}
	})
	return c, relay.WriteFunc(func(reply []byte) (int, error) {
		if c.cut.Load() {
			return 0, errors.New("the reply is lost")
		}
		return client.Write(reply)
	})
}

// A counted writer counts the scripts of a client, and writes its requests to Redis after a delay.
type counted struct {
	proxy   *Proxy
	delay   time.Duration
	cut     atomic.Bool // the next reply is lost
	pieces  chan piece
	writing sync.WaitGroup
}

type piece struct {
	data []byte
	due  time.Time
}

// Write returns immediately. It assumes that each command is written at once.
func (c *counted) Write(data []byte) (int, error) {
	lower := bytes.ToLower(data)
	if calls := bytes.Count(lower, []byte("\r\nevalsha\r\n")) + bytes.Count(lower, []byte("\r\neval\r\n")); calls > 0 {
		c.proxy.mu.Lock()
		c.proxy.calls += calls
		if c.proxy.cuts {
			c.cut.Store(true)
		}
		c.proxy.mu.Unlock()
	}
	c.pieces <- piece{bytes.Clone(data), time.Now().Add(c.delay)}
	return len(data), nil
}

// Close waits for the last write.
func (c *counted) Close() error {
	close(c.pieces)
	c.writing.Wait()
	return nil
}
