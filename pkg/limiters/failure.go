package limiters

import "slices"

// OnError is what becomes of a hit that the store could not decide. No store acts on it: [Hit] carries it to what stands
// before the store.
type OnError uint8

// The policies. OnErrorUnsaid leaves it to others, and in the end is OnErrorFail.
const (
	OnErrorUnsaid OnError = iota
	OnErrorFail           // the hit's verdict is the error
	OnErrorAllow
	OnErrorDeny
	OnErrorLocal // decide in this process's memory, by its share of the limit
)

var onErrorNames = []string{"", "error", "allow", "deny", "local"}

// OnErrors are the names of the policies, the default first.
func OnErrors() []string { return slices.Clone(onErrorNames[OnErrorFail:]) }

// OnErrorOf is the policy of that name, OnErrorUnsaid if there is none.
func OnErrorOf(name string) OnError { return OnError(max(0, slices.Index(onErrorNames, name))) }

// String is the policy's name, "" for none.
func (o OnError) String() string { return onErrorNames[o] }

// A Source is who decided a hit.
type Source uint8

// The sources. A store leaves ByStore.
const (
	ByStore Source = iota
	// ByCache: a denial that a cache in this process remembered; the store was not asked. What the verdict tells of the key
	// is from when the store was asked; of that time, RetryAfter is no shorter than it had to be.
	ByCache
	// ByShare: the store failed, and this process decided by its share of the limit, of which the verdict tells.
	ByShare
	// ByPolicy: the store failed, and the policy allows or denies whatever comes. The verdict tells nothing of the key.
	ByPolicy
)
