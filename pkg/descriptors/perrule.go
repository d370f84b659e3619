package descriptors

import "sync/atomic"

// A PerRule caches a pointer for each rule in force, which saves observers a lookup by name. It is
// safe for concurrent use. The zero value is empty.
type PerRule[T any] struct{ current atomic.Pointer[perRule[T]] }

type perRule[T any] struct {
	table  *ruleTable
	values []atomic.Pointer[T] // by the number of the rule - 1
}

// Reset clears the cache and allocates a pointer for each of rules.
func (p *PerRule[T]) Reset(rules *Rules) {
	if rules == nil || rules.table == nil {
		p.current.Store(nil)
		return
	}
	p.current.Store(&perRule[T]{rules.table, make([]atomic.Pointer[T], rules.table.n)})
}

// Of returns the cached pointer of rule; nil if rule is not one of the rules of the last Reset.
func (p *PerRule[T]) Of(rule *Rule) *atomic.Pointer[T] {
	c := p.current.Load()
	if c == nil || c.table.get(rule.number) != rule {
		return nil
	}
	return &c.values[rule.number-1]
}
