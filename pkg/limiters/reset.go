package limiters

import (
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

// A Progress is the result of one call of ResetMatching.
type Progress struct {
	Scanned int64  // keys that the call has seen
	Reset   int64  // keys that the call has reset
	Cursor  string // continues the pass; empty when it is complete
}

// ErrHiddenKeys is returned by a store that has only hashes of keys and so cannot match them.
var ErrHiddenKeys = errors.New("the store has hashes of keys only")

// ErrCursor is returned for a cursor that the store cannot have returned.
var ErrCursor = errors.New("invalid cursor")
