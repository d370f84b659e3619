// Package replicas counts the replicas that share the limits.
package replicas

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
)

// Options configures a [Counter].
type Options struct {
	Number int    // until the first lookup
	Name   string // DNS name with an address for each replica; "" keeps Number

	Changed func(before, now int)
	Failed  func(number int, err error) // called at the first of consecutive failed lookups, with the number that stays

	lookup func(ctx context.Context, host string) ([]string, error) // set by tests
}

// A Counter holds the number of replicas. It is safe for concurrent use.
type Counter struct {
	options Options
	number  atomic.Int64
}

const (
	lookupInterval = 10 * time.Second
	lookupTimeout  = 2 * time.Second
)

// New returns a Counter that has not looked up its name yet.
func New(o Options) *Counter {
	if o.lookup == nil {
		o.lookup = net.DefaultResolver.LookupHost
	}
	c := &Counter{options: o}
	c.number.Store(int64(o.Number))
	return c
}

// Number returns the number of replicas.
func (c *Counter) Number() int { return int(c.number.Load()) }

// Run counts the replicas every 10 seconds until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	if c.options.Name == "" {
		return
	}
	for failing := false; ; {
		err := c.lookUp(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			c.options.Failed(c.Number(), err)
		}
		failing = err != nil
		if backoff.Sleep(ctx, lookupInterval) != nil {
			return
		}
	}
}

// lookUp counts the replicas once. It keeps the old number if the lookup fails or finds no address.
func (c *Counter) lookUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addresses, err := c.options.lookup(ctx, c.options.Name)
	if err != nil {
		return err
	}
	now := countHosts(addresses)
	if now == 0 {
		return nil
	}
	if before := int(c.number.Swap(int64(now))); before != now {
		c.options.Changed(before, now)
	}
	return nil
}

// countHosts returns the number of hosts behind addresses. A dual-stack host has an address of each
// family, so the larger family counts.
func countHosts(addresses []string) int {
	hosts, v4 := map[netip.Addr]bool{}, 0
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err != nil || hosts[a] {
			continue
		}
		hosts[a] = true
		if a.Is4() {
			v4++
		}
	}
	return max(v4, len(hosts)-v4)
}
