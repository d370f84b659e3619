package descriptors

import "sync/atomic"

// A PerRule caches one pointer for each rule of the rules in force, so that an observer finds what belongs to a rule
// without a lookup by name. It is safe for concurrent use; its zero value caches nothing.
type PerRule[T any] struct{ current atomic.Pointer[perRule[T]] }

type perRule[T any] struct {
	rules *chunks
	of    []atomic.Pointer[T] // by the number of the rule, less 1
}

// Reset forgets all pointers, and makes room for the rules given.
func (p *PerRule[T]) Reset(rules *Rules) {
	if rules == nil || rules.chunks == nil {
		p.current.Store(nil)
		return
	}
	p.current.Store(&perRule[T]{rules.chunks, make([]atomic.Pointer[T], rules.chunks.n)})
}

// Of returns the pointer of a rule, to load and to store; nil if the rule is not one of the rules of the last Reset.
func (p *PerRule[T]) Of(rule *Rule) *atomic.Pointer[T] {
	c := p.current.Load()
	if c == nil || c.rules.at(rule.number) != rule {
		return nil
	}
	return &c.of[rule.number-1]
}
