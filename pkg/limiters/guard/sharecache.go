package guard

import (
	"math/bits"

	"github.com/weir-rls/weir/internal/memo"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A shareCache computes and caches shares, and the limits that admit them.
type shareCache struct {
	falseLimitProbability float64                               // see [FallbackOptions]
	limits                memo.Cache[limitKey, *limiters.Limit] // for charges of 1 hit only, because each size would need its own entry
	shares                memo.Cache[shareKey, int64]
}

type limitKey struct {
	limit    *limiters.Limit
	replicas int64
}

type shareKey struct{ whole, replicas int64 }

func (c *shareCache) forget() {
	c.limits.Clear()
	c.shares.Clear()
}

// limitFor returns the limit that each of replicas applies to charges of n > 0 hits under l.
func (c *shareCache) limitFor(l *limiters.Limit, n, replicas int64) (*limiters.Limit, error) {
	if n > 1 {
		return l.Scaled(func(whole int64) int64 { return c.shareForHits(whole, n, replicas) })
	}
	return c.limits.Get(limitKey{l, replicas}, func() (*limiters.Limit, error) {
		return l.Scaled(func(whole int64) int64 { return c.share(whole, replicas) })
	})
}

// shareForHits returns the share of whole for charges of n hits: at least n times the share of
// whole/n requests.
func (c *shareCache) shareForHits(whole, n, replicas int64) int64 {
	if n > whole {
		// Such a charge never fits, or it fits a funnel whose capacity exceeds its rate.
		return whole
	}
	byHits := min(whole, n*c.share(roundUpTo5Bits(whole/n), replicas))
	return max(byHits, c.share(whole, replicas))
}

func (c *shareCache) share(whole, replicas int64) int64 {
	m, _ := c.shares.Get(shareKey{whole, replicas}, func() (int64, error) { return share(whole, replicas, c.falseLimitProbability), nil })
	return m
}

// roundUpTo5Bits rounds n up to five significant bits, so that few different shares are computed.
// It adds less than a sixteenth, and nothing below 32.
func roundUpTo5Bits(n int64) int64 {
	shift := max(0, bits.Len64(uint64(n))-5)
	return (n + 1<<shift - 1) >> shift << shift
}
