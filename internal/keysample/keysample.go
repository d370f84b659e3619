// Package keysample selects a fraction of all keys, which is the same in all processes: the keys
// whose hash is at most a maximum.
package keysample

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// MaxHash returns the highest hash of a fraction of all keys; 0 selects none.
func MaxHash(fraction float64) uint64 {
	switch {
	case !(fraction > 0): // NaN too
		return 0
	case fraction >= 1:
		return math.MaxUint64
	}
	return uint64(fraction * (1 << 32) * (1 << 32))
}

// Hash returns the hash of the key of p. A descriptor without a limit has a key too. Hash does not
// allocate for most keys.
func Hash(p *decide.Plan) uint64 {
	if p.Key != "" {
		return xxhash.Sum64String(p.Key)
	}
	var stack [256]byte
	return xxhash.Sum64(descriptors.AppendKey(stack[:0], p.Domain, p.Rule, p.Entries))
}
