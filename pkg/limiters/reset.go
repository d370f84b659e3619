package limiters

import (
	"context"
	"errors"
	"time"
)

// A Keyed names the state of a key under a limit, and under every limit with the same ID. It can be sent to another process.
type Keyed struct {
	Key    string        `json:"key"`
	ID     string        `json:"id"`     // of the limit, see [Limit.ID]
	Window time.Duration `json:"window"` // of the limit
}

// Keyed returns the name of the state of a key under l.
func (l *Limit) Keyed(key string) Keyed { return Keyed{key, l.id, l.spec.Window} }

// A Resetter is a [Store] that can reset keys. Every store and decorator of this module is one.
type Resetter interface {
	// Reset removes the states of keys, with their penalties and leases: each key is then like one never hit. A hit that is decided
	// at the same time is charged before the reset or after it. found reports for each key whether there was a state to remove. After
	// an error some of the keys may have been reset.
	Reset(ctx context.Context, keys []Keyed) (found []bool, err error)
	// ResetMatching resets keys that match reports true for, as Reset does, in a bounded time. An empty cursor begins a pass over all
	// keys, and the cursor of a Progress continues one. A pass resets every key that is in the store from its begin to its end.
	ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (Progress, error)
}

// A Progress is the result of one call of ResetMatching.
type Progress struct {
	Scanned int64  // keys that the call has seen
	Reset   int64  // keys that the call has reset
	Cursor  string // continues the pass; empty when it is complete
}

// ErrNoReset is the error of a store that cannot reset keys.
var ErrNoReset = errors.New("the store cannot reset keys")

// ErrHiddenKeys is the error of a store that cannot match keys because it has only their hashes.
var ErrHiddenKeys = errors.New("the store has hashes of keys only")

// ErrCursor is the error of a cursor that the store has not returned.
var ErrCursor = errors.New("invalid cursor")

// Reset has a store reset keys. The error is [ErrNoReset] if it is no [Resetter].
func Reset(ctx context.Context, store Store, keys []Keyed) (found []bool, err error) {
	if r, ok := store.(Resetter); ok {
		return r.Reset(ctx, keys)
	}
	return nil, ErrNoReset
}

// ResetMatching has a store reset the keys that match. The error is [ErrNoReset] if it is no [Resetter].
func ResetMatching(ctx context.Context, store Store, match func(key string) bool, cursor string) (Progress, error) {
	if r, ok := store.(Resetter); ok {
		return r.ResetMatching(ctx, match, cursor)
	}
	return Progress{}, ErrNoReset
}
