package guard

import (
	"math/bits"
	"sync"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A shareCache computes shares, and the limits by which a replica admits its share. It caches both.
type shareCache struct {
	p      float64                          // see share
	limits cache[limitKey, *limiters.Limit] // for hits of 1 only, because each size would need its own entry
	shares cache[shareKey, int64]
}

type limitKey struct {
	limit    *limiters.Limit
	replicas int64
}

type shareKey struct{ whole, replicas int64 }

func (c *shareCache) forget() {
	c.limits.forget()
	c.shares.forget()
}

// replicaLimit returns the limit by which each of replicas decides hits of n > 0 under l.
func (c *shareCache) replicaLimit(l *limiters.Limit, n, replicas int64) (*limiters.Limit, error) {
	if n > 1 {
		return l.Scaled(func(whole int64) int64 { return c.shareForHits(whole, n, replicas) })
	}
	return c.limits.get(limitKey{l, replicas}, func() (*limiters.Limit, error) {
		return l.Scaled(func(whole int64) int64 { return c.share(whole, replicas) })
	})
}

// shareForHits returns the share of whole for hits of n: at least n times the share of whole/n requests.
func (c *shareCache) shareForHits(whole, n, replicas int64) int64 {
	if n > whole {
		// Such a hit never fits, or it fits a funnel whose capacity exceeds its rate.
		return whole
	}
	byHits := min(whole, n*c.share(roundUp(whole/n), replicas))
	return max(byHits, c.share(whole, replicas))
}

func (c *shareCache) share(whole, replicas int64) int64 {
	m, _ := c.shares.get(shareKey{whole, replicas}, func() (int64, error) { return share(whole, replicas, c.p), nil })
	return m
}

// roundUp rounds n up to five significant bits, so that few different shares are computed. It adds less than a sixteenth, and
// nothing below 32.
func roundUp(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-5)
	return (n + 1<<shift - 1) >> shift << shift
}

// maxCached bounds a cache. Beyond it, a new value evicts another.
const maxCached = 10_000

// A cache remembers computed values. The zero cache is empty.
type cache[K comparable, V any] struct {
	mu     sync.RWMutex
	values map[K]V
}

// get returns the value of key. If it is not cached, get computes it.
func (c *cache[K, V]) get(key K, compute func() (V, error)) (V, error) {
	c.mu.RLock()
	v, found := c.values[key]
	c.mu.RUnlock()
	if found {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return v, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values = map[K]V{}
	}
	for other := range c.values {
		if len(c.values) < maxCached {
			break
		}
		delete(c.values, other)
	}
	c.values[key] = v
	return v, nil
}

func (c *cache[K, V]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = nil
}
