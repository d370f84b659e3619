// Package guard holds the decorators of a limiters.Store. A decorator is a Store that wraps another: [DenyCache] answers
// repeated denials from memory, [Fallback] decides when a store fails, [PerSecond] divides hits between two stores, and
// [Observed] reports calls. A decorator knows limits and verdicts, but no particular store or algorithm.
package guard
