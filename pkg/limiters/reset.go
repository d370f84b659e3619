package limiters

import (
	"context"
	"errors"
	"time"
)

// A StateName names the state of a key, which all limits with one ID share. It can be sent to another process.
type StateName struct {
	Key    string        `json:"key"`
	ID     string        `json:"id"`     // of the limit, see [Limit.ID]
	Window time.Duration `json:"window"` // of the limit
}

// StateName returns the name of the state of a key under l.
func (l *Limit) StateName(key string) StateName { return StateName{key, l.id, l.spec.Window} }

// A Resetter is a [Store] that can reset keys. All stores and decorators of this module implement it.
type Resetter interface {
	// Reset removes the states of keys, including penalties and leases, so that each key is as if never used. A concurrent hit is
	// charged either before or after. found reports for each key whether it had a state. On an error, some keys may have been
	// reset.
	Reset(ctx context.Context, keys []StateName) (found []bool, err error)
	// ResetMatching resets the keys for which match returns true, in steps of bounded time. A pass over all keys starts with an
	// empty cursor and continues with that of Progress. It resets every matching key that exists from its start to its end.
	ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (Progress, error)
}

// A Progress is the result of one call of ResetMatching.
type Progress struct {
	Scanned int64  // keys that the call has seen
	Reset   int64  // keys that the call has reset
	Cursor  string // continues the pass; empty when it is complete
}

// ErrNoReset is returned for a store that is not a [Resetter].
var ErrNoReset = errors.New("the store cannot reset keys")

// ErrHiddenKeys is returned by a store that has only hashes of keys and so cannot match them.
var ErrHiddenKeys = errors.New("the store has hashes of keys only")

// ErrCursor is returned for a cursor that the store did not return.
var ErrCursor = errors.New("invalid cursor")

// Reset calls store.Reset, or returns [ErrNoReset] if store is not a [Resetter].
func Reset(ctx context.Context, store Store, keys []StateName) (found []bool, err error) {
	if r, ok := store.(Resetter); ok {
		return r.Reset(ctx, keys)
	}
	return nil, ErrNoReset
}

// ResetMatching calls store.ResetMatching, or returns [ErrNoReset] if store is not a [Resetter].
func ResetMatching(ctx context.Context, store Store, match func(key string) bool, cursor string) (Progress, error) {
	if r, ok := store.(Resetter); ok {
		return r.ResetMatching(ctx, match, cursor)
	}
	return Progress{}, ErrNoReset
}
