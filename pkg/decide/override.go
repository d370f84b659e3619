package decide

import (
	"sync"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// An overrideCache deduplicates the limits of overrides, which stores would otherwise keep once for each key.
type overrideCache struct {
	mu     sync.RWMutex
	limits map[overrideKey][]descriptors.RateLimit // one limit each
}

type overrideKey struct {
	base     descriptors.OverrideBase
	override Override
}

// maxOverrides bounds the cache. A full cache is cleared.
const maxOverrides = 10_000

// limit returns the limit of override under base, in a shared slice of length 1 that must not be modified.
func (c *overrideCache) limit(base descriptors.OverrideBase, override Override) ([]descriptors.RateLimit, error) {
	key := overrideKey{base, override}
	c.mu.RLock()
	found := c.limits[key]
	c.mu.RUnlock()
	if found != nil {
		return found, nil
	}
	limit, err := key.base.Limit(override.RequestsPerUnit, override.Unit, override.UnitMultiplier)
	if err != nil {
		return nil, err
	}
	found = []descriptors.RateLimit{limit}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limits == nil || len(c.limits) >= maxOverrides {
		c.limits = make(map[overrideKey][]descriptors.RateLimit)
	}
	c.limits[key] = found
	return found, nil
}
