package limiters

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// Uncharged wraps an error of a Take or of an operation to report that the Take or the operation
// has charged nothing, for example because nothing was sent. After any other error hits may have
// been charged. [errors.Is] and [errors.As] see err.
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

func (e *unchargedError) Error() string { return "nothing was charged: " + e.error.Error() }
func (e *unchargedError) Unwrap() error { return e.error }

// ErrPanic is the error of operations whose store panicked. Hits may have been charged.
var ErrPanic = errors.New("a bug, please report it: panic")

// CatchPanic calls f. A panic becomes an error that wraps [ErrPanic] and contains the stack. Every
// goroutine that decides operations must use CatchPanic.
func CatchPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
		}
	}()
	return f()
}
