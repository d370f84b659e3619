// Package guard holds decorators of a limiters.Store: stores that stand before another, and are told apart from it by
// what they spare it. They know limits and verdicts, no store and no algorithm.
package guard
