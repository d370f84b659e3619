// Package guard wraps a [limiters.Store]. It depends on no particular store or algorithm:
//
//   - [DenyCache] answers repeated denials from memory.
//   - [EndRetrier] retries ends of leases.
//   - [Fallback] applies on_store_error when the store fails.
//
// Each is a Store. An end is an operation with [limiters.OpEnd]: it ends a lease.
package guard
