package decide

import "github.com/weir-rls/weir/pkg/descriptors"

// An overrideKey identifies the limit of an override.
type overrideKey struct {
	base     descriptors.OverrideBase
	override Override
}

// limitOf returns the limit of override under base, in a shared slice of length 1 that must not be
// modified.
func (p *Planner) limitOf(base descriptors.OverrideBase, override Override) ([]descriptors.RateLimit, error) {
	return p.overrides.Get(overrideKey{base, override}, func() ([]descriptors.RateLimit, error) {
		limit, err := base.Limit(override.RequestsPerUnit, override.Unit, override.UnitMultiplier)
		return []descriptors.RateLimit{limit}, err
	})
}
