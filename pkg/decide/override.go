package decide

import (
	"sync"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// An overrideCache keeps the limits of overrides. Requests use few different ones, and a store that keeps a limit with
// each of its keys should share it among them.
type overrideCache struct {
	mu     sync.RWMutex
	limits map[overrideKey][]descriptors.RateLimit // one limit each
}

type overrideKey struct {
	rule     descriptors.OverrideBase
	override Override
}

// maxOverrides bounds the cache. When it is full the cache starts again, empty.
const maxOverrides = 10_000

// limit returns a list of the one limit that override asks for under rule. The list is shared: it must not be changed.
func (c *overrideCache) limit(rule descriptors.OverrideBase, override Override) ([]descriptors.RateLimit, error) {
	key := overrideKey{rule, override}
	c.mu.RLock()
	found := c.limits[key]
	c.mu.RUnlock()
	if found != nil {
		return found, nil
	}
	limit, err := key.rule.Limit(override.RequestsPerUnit, override.Unit, override.UnitMultiplier)
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
