package limiters

import (
	"math"
	"slices"
)

// This file declares types for stores that wrap another store, such as those of package guard.
// A store that wraps none ignores them in an [Op], and leaves them zero in a [Verdict].

// A FallbackRoute is read by guard.Fallback alone. It belongs to the operation so that one Take,
// and one group, may mix routes.
type FallbackRoute struct {
	// OnStoreError decides the operation if the store fails.
	OnStoreError OnStoreError
	// LeaseAt, of an end, is the LeaseAt of the verdict on the charge that opened the lease. It
	// selects the stores that get the end. [Op.Undo] sets it.
	LeaseAt LeaseLocation
}

// An OnStoreError is the on_store_error of an operation: it decides the operation if the store
// cannot. It may differ within one Take.
type OnStoreError uint8

// The values of OnStoreError. OnStoreErrorUnset defers to the domain, and then to OnStoreErrorFail.
const (
	OnStoreErrorUnset OnStoreError = iota
	OnStoreErrorFail               // the verdict is the error
	OnStoreErrorAllow
	OnStoreErrorDeny
	OnStoreErrorLocal // decide in this process's memory, under its share of the limit
)

var onStoreErrorNames = []string{"", "error", "allow", "deny", "local"}

// OnStoreErrorNames returns the names of all values but OnStoreErrorUnset, the default first.
func OnStoreErrorNames() []string { return slices.Clone(onStoreErrorNames[OnStoreErrorFail:]) }

// ParseOnStoreError returns the value with a name, or OnStoreErrorUnset if there is none.
func ParseOnStoreError(name string) OnStoreError {
	return OnStoreError(max(0, slices.Index(onStoreErrorNames, name)))
}

// String returns the name of o; "" for OnStoreErrorUnset.
func (o OnStoreError) String() string { return onStoreErrorNames[o] }

// OrderAfterStore sorts after every decision of the store with equal At. A verdict by the cache has
// it as its Order.
const OrderAfterStore = math.MaxUint16

// A LeaseLocation names the store in which the lease of a request may be.
type LeaseLocation uint8

// The values of LeaseLocation.
const (
	LeaseInStore     LeaseLocation = iota // the store may have the lease, even if this process decided the charge
	LeaseOnlyInShare                      // this process's share has the lease: the store has charged nothing
	LeaseNowhere                          // no lease exists: [OnStoreError] allowed the charge, and the store has charged nothing
)

// DecidedBy names the origin of a verdict: the store with the counters, or this process in place of
// that store.
type DecidedBy uint8

// The values of DecidedBy.
const (
	ByStore DecidedBy = iota
	// ByCache: a remembered denial of this process. Usage and times are those of the store's last
	// verdict, so RetryAfter omits what other processes have charged since then.
	ByCache
	// ByShare: the store failed, and this process decided under its share of the limit, which
	// the verdict describes.
	ByShare
	// ByPolicy: the store failed, and [OnStoreError] allowed or denied the operation regardless of
	// the key.
	ByPolicy
)

var decidedByNames = [...]string{ByStore: "store", ByCache: "cache", ByShare: "share", ByPolicy: "policy"}

// AfterFailure reports whether this process decided because the store failed.
func (b DecidedBy) AfterFailure() bool { return b == ByShare || b == ByPolicy }

// String returns the name of b, such as "store".
func (b DecidedBy) String() string { return decidedByNames[b] }
