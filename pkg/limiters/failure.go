package limiters

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// Uncharged wraps an error of a Take or of an operation to report that nothing was charged, for
// example because nothing was sent. After any other error hits may have been charged. [errors.Is]
// and [errors.As] see err.
func Uncharged(err error) error { return &unchargedError{err} }

// IsUncharged reports whether err or an error that it wraps was returned by [Uncharged]. An error
// that wraps several, such as that of [errors.Join], is uncharged only if all of them are.
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

// ErrPanic is the error of operations whose store panicked. Hits may have been charged.
var ErrPanic = errors.New("a bug, please report it: panic")

// CatchPanic calls f. A panic becomes an error with the stack that wraps [ErrPanic]. Every
// goroutine that decides operations must use CatchPanic.
func CatchPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
		}
	}()
	return f()
}

// An OnError is the on_store_error of an operation, which it decides if the store cannot. It may
// differ within one Take.
type OnError uint8

// The values of OnError. OnErrorUnset defers to the domain, and then to OnErrorFail.
const (
	OnErrorUnset OnError = iota
	OnErrorFail          // the verdict is the error
	OnErrorAllow
	OnErrorDeny
	OnErrorLocal // decide in this process's memory by its share of the limit
)

var onErrorNames = []string{"", "error", "allow", "deny", "local"}

// OnErrorNames returns the names of all values but OnErrorUnset, the default first.
func OnErrorNames() []string { return slices.Clone(onErrorNames[OnErrorFail:]) }

// ParseOnError returns the value with a name, or OnErrorUnset if there is none.
func ParseOnError(name string) OnError { return OnError(max(0, slices.Index(onErrorNames, name))) }

// String returns the name of o; "" for OnErrorUnset.
func (o OnError) String() string { return onErrorNames[o] }

// DecidedBy names the decider of an operation: the store with the counters, or this process in
// place of that store.
type DecidedBy uint8

// The values of DecidedBy.
const (
	ByStore DecidedBy = iota
	// ByCache: a remembered denial of this process. Usage and times are those of the store's last
	// verdict. RetryAfter is never too short.
	ByCache
	// ByShare: the store failed, and this process decided by its share of the limit, which the
	// verdict describes.
	ByShare
	// ByPolicy: the store failed, and [OnError] allowed or denied the operation regardless of the
	// key.
	ByPolicy
)

var decidedByNames = [...]string{ByStore: "store", ByCache: "cache", ByShare: "share", ByPolicy: "policy"}

// InsteadOfStore reports whether this process decided because the store failed.
func (b DecidedBy) InsteadOfStore() bool { return b == ByShare || b == ByPolicy }

// String returns the name of b, such as "store".
func (b DecidedBy) String() string { return decidedByNames[b] }
