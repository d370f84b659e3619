// Package guard wraps a [limiters.Store]. It depends on no particular store or algorithm:
//
//   - [DenyCache] answers repeated denials from memory.
//   - [EndRetrier] retries ends of leases.
//   - [Fallback] decides by on_store_error when the store fails.
//   - [PerSecond] divides hits between two stores.
//
// Each is a Store but Fallback, whose Take needs the on_store_error of each hit. An end is a [limiters.Hit] with End: it releases or
// settles a lease.
package guard

import "github.com/weir-rls/weir/pkg/limiters"

// An inner is the wrapped store of a decorator that changes only Take. The name is unexported, so embedding it exports no way around
// the decorator.
type inner = limiters.Store
