package rls

import (
	"sync"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// overrides keeps the limits that requests brought along: they are few as a rule, and a store that keeps one for each of
// its keys should keep the same.
type overrides struct {
	mu     sync.RWMutex
	limits map[overrideOf]descriptors.RateLimit
}

type overrideOf struct {
	rule descriptors.Overridden
	override
}

// maxOverrides bounds what is kept; past it all is forgotten and made again.
const maxOverrides = 10_000

func (o *overrides) limit(rule *descriptors.Rule, asked override) (descriptors.RateLimit, error) {
	of := overrideOf{rule.Overridden(), asked}
	o.mu.RLock()
	limit, found := o.limits[of]
	o.mu.RUnlock()
	if found {
		return limit, nil
	}
	limit, err := of.rule.By(asked.requestsPerUnit, asked.unit, asked.multiplier)
	if err != nil {
		return limit, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.limits == nil || len(o.limits) >= maxOverrides {
		o.limits = make(map[overrideOf]descriptors.RateLimit)
	}
	o.limits[of] = limit
	return limit, nil
}
