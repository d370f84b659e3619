package limiters

import "slices"

// An OnError is the on_store_error of an operation: it decides the operation if the store cannot.
// It may differ within one Take.
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
