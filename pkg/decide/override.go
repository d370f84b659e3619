package decide

import (
	"github.com/weir-rls/weir/internal/memo"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// An overrideCache deduplicates the limits of overrides, which stores would otherwise keep once for
// each key.
type overrideCache struct {
	limits memo.Cache[overrideKey, []descriptors.RateLimit] // one limit each
}

type overrideKey struct {
	base     descriptors.OverrideBase
	override Override
}

// limit returns the limit of override under base, in a shared slice of length 1 that must not be
// modified.
func (c *overrideCache) limit(base descriptors.OverrideBase, override Override) ([]descriptors.RateLimit, error) {
	return c.limits.Get(overrideKey{base, override}, func() ([]descriptors.RateLimit, error) {
		limit, err := base.Limit(override.RequestsPerUnit, override.Unit, override.UnitMultiplier)
		return []descriptors.RateLimit{limit}, err
	})
}
