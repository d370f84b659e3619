package decide

import "context"

// A Kind says why a request could not be decided.
type Kind uint8

// The kinds of errors.
const (
	InvalidRequest Kind = iota + 1 // the caller must change the request
	NoRules                        // no rules have been loaded yet
	StoreFailed                    // the store could not decide a descriptor that matters
	ContextEnded                   // the context was canceled, or its deadline passed, before the store decided
)

// An Error is the reason why a request could not be decided.
type Error struct {
	Kind  Kind
	text  string
	cause error
}

// Error returns a text that is safe to send to the client: it never holds the words of the store.
func (e *Error) Error() string { return e.text }

// Unwrap returns the cause: the store's error, or that of the context. It may hold keys, which hold what users sent.
func (e *Error) Unwrap() error { return e.cause }

// storeError is the error of a request that the store could not decide. An ended context is the more likely reason for
// the failure, and explains it better.
func storeError(ctx context.Context, text string, cause error) *Error {
	if err := ctx.Err(); err != nil {
		return &Error{Kind: ContextEnded, text: err.Error(), cause: err}
	}
	return &Error{Kind: StoreFailed, text: text, cause: cause}
}
