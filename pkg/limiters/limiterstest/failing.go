package limiterstest

import (
	"context"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A FailingStore is a store whose Takes fail, as a whole or for some keys. If every Take has
// operations and fails, Store may be nil.
type FailingStore struct {
	limiters.Store
	Err   error                  // returned by each Take, if not nil
	OfKey func(key string) error // the error of an operation on a key; nil: none
}

// Take implements [limiters.Store].
func (s *FailingStore) Take(ctx context.Context, groups []limiters.Group, out []limiters.Verdict) error {
	if err := ctx.Err(); err != nil {
		return limiters.FailAll(out, limiters.Uncharged(err))
	}
	if s.Err != nil && len(groups) > 0 {
		return limiters.FailAll(out, s.Err)
	}
	err := s.Store.Take(ctx, groups, out)
	for i, op := range slices.Concat(groups...) {
		if s.OfKey == nil {
			break
		}
		if err := s.OfKey(op.Key); err != nil {
			out[i] = limiters.Verdict{Err: err}
		}
	}
	return err
}
