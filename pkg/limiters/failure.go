package limiters

import "slices"

// Uncharged marks an error of a Take or of a hit: nothing was charged for certain, for instance because nothing was sent.
// After any other error the hit may have been charged. errors.Is and errors.As see err.
func Uncharged(err error) error { return &unchargedError{err} }

// IsUncharged reports whether [Uncharged] has marked err or the error that it wraps. An error that wraps several, such as
// the result of errors.Join, is uncharged only if each of them is.
func IsUncharged(err error) bool {
	switch err := err.(type) { //nolint:errorlint // it walks the chain itself: errors.As would accept any branch
	case *unchargedError:
		return true
	case interface{ Unwrap() error }:
		return IsUncharged(err.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(err.Unwrap(), func(e error) bool { return !IsUncharged(e) })
	}
	return false
}

type unchargedError struct{ error }

func (e *unchargedError) Error() string { return e.error.Error() + ": nothing was charged" }
func (e *unchargedError) Unwrap() error { return e.error }

// OnError is the policy for a hit that the store could not decide, see guard.Fallback. Rules, hits and metrics use it, so it
// belongs to the core, which only carries it.
type OnError uint8

// The policies. OnErrorUnset stands for the policy of the domain, and without one for OnErrorFail.
const (
	OnErrorUnset OnError = iota
	OnErrorFail          // the hit's verdict is the error
	OnErrorAllow
	OnErrorDeny
	OnErrorLocal // decide in this process's memory by its share of the limit
)

var onErrorNames = []string{"", "error", "allow", "deny", "local"}

// OnErrors returns the names of the policies, the default first.
func OnErrors() []string { return slices.Clone(onErrorNames[OnErrorFail:]) }

// OnErrorOf returns the policy of a name, or OnErrorUnset if there is none.
func OnErrorOf(name string) OnError { return OnError(max(0, slices.Index(onErrorNames, name))) }

// String returns the policy's name, "" for OnErrorUnset.
func (o OnError) String() string { return onErrorNames[o] }

// A Source is the origin of a verdict. The decorators of package guard set all but ByStore. The sources are here because a
// [Verdict] carries its source to the metrics and the logs.
type Source uint8

// The sources. Stores return ByStore.
const (
	ByStore Source = iota
	// ByCache: this process remembered the denial and did not call the store. Usage and times are those of the store's last
	// verdict; RetryAfter is never too short.
	ByCache
	// ByShare: the store failed, and this process decided by its share of the limit. The verdict is about the share.
	ByShare
	// ByPolicy: the store failed, and the policy allows or denies every hit. The verdict says nothing about the key.
	ByPolicy
)
