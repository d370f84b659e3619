// Package memo remembers computed values in bounded memory.
package memo

import "sync"

// maxValues bounds a cache. Beyond it, a new value evicts another.
const maxValues = 10_000

// A Cache remembers the value of each key. The zero Cache is empty. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	mu     sync.RWMutex
	values map[K]V
}

// Get returns the value of key. If the cache does not have it, Get computes it. An error is not
// remembered.
func (c *Cache[K, V]) Get(key K, compute func() (V, error)) (V, error) {
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
		if len(c.values) < maxValues {
			break
		}
		delete(c.values, other)
	}
	c.values[key] = v
	return v, nil
}

// Len returns the number of values.
func (c *Cache[K, V]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.values)
}

// Clear removes all values.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = nil
}
