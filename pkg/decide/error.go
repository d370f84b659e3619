package decide

// An ErrorKind classifies an [Error].
type ErrorKind uint8

// The kinds of errors.
const (
	InvalidRequest ErrorKind = iota + 1 // the caller must change the request
	NoRules                             // no rules have been loaded yet
	StoreFailed                         // a descriptor that the outcome depends on has the reason StoreError
	ContextEnded                        // the context was canceled, or its deadline passed, before the request was decided
)

// An Error reports why a request could not be decided.
type Error struct {
	Kind  ErrorKind
	text  string
	cause error
}

// Error returns a text without details of the store, which may be shown to the client.
func (e *Error) Error() string { return e.text }

// Unwrap returns the error of the store or of the context. It may contain keys, and so data of
// users.
func (e *Error) Unwrap() error { return e.cause }

// undecidedError returns the error for a store call that failed, as a whole or in part. If the
// context has ended, with the error ended, it blames the context, which probably caused the
// failure.
func undecidedError(ended error, whole bool, cause error) error {
	if ended != nil {
		return contextEnded(ended)
	}
	text := "the store could not decide every descriptor"
	if whole {
		text = "the store failed"
	}
	return &Error{Kind: StoreFailed, text: text, cause: cause}
}

func contextEnded(err error) error { return &Error{Kind: ContextEnded, text: err.Error(), cause: err} }
