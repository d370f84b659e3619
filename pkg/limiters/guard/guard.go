// Package guard has decorators of a [limiters.Store], which depend on no particular store or algorithm:
//
//   - [DenyCache] answers repeated denials from memory.
//   - [EndQueue] retries ends of leases.
//   - [Fallback] decides when the store fails.
//   - [PerSecond] divides hits between two stores.
//   - [Observed] reports calls.
package guard
