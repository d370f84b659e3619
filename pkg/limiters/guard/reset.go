package guard

import (
	"context"
	"strings"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reset implements [limiters.Store]. It removes unsent debts, which belong to the old state.
func (c *DenyCache) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	c.ForgetKeys(keys)
	found, err = c.store.Reset(ctx, keys)
	c.ForgetKeys(keys) // again, because calls in flight may have recorded denials
	return found, err
}

// ForgetKeys removes the denials and debts of keys, including denials that calls in flight will
// return. Call it when another process has reset the keys.
func (c *DenyCache) ForgetKeys(keys []limiters.StateName) {
	if c == nil {
		return
	}
	for _, k := range keys {
		s := c.shardOf(k.Key)
		s.mu.Lock()
		s.generation++
		s.removeKey(k.Key)
		s.mu.Unlock()
	}
}

// ResetMatching implements [limiters.Store].
func (c *DenyCache) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	c.ForgetMatching(match)
	progress, err := c.store.ResetMatching(ctx, match, cursor)
	c.ForgetMatching(match)
	return progress, err
}

// ForgetMatching is [DenyCache.ForgetKeys] for all keys that match.
func (c *DenyCache) ForgetMatching(match func(key string) bool) {
	c.eachShard(func(s *denyShard) {
		s.generation++
		for key := range s.entries {
			if match(key) {
				s.removeKey(key)
			}
		}
	})
}

// Reset implements [limiters.Store]. It resets local counters even if the store fails.
func (f *Fallback) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	found, err = f.store.Reset(ctx, keys)
	if f.local.store == nil {
		return found, err
	}
	local, localErr := f.local.store.Reset(ctx, keys)
	if err != nil {
		return found, err
	}
	return orElementwise(found, local), localErr
}

// ResetMatching implements [limiters.Store]. The first call of a pass also resets all local
// counters, even if the store fails, but not if it rejects the call.
func (f *Fallback) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	progress, err := f.store.ResetMatching(ctx, match, cursor)
	if f.local.store == nil || cursor != "" || limiters.IsRejectedReset(err) {
		return progress, err
	}
	local, localErr := f.local.store.ResetMatching(ctx, match, "")
	if err != nil {
		return progress, err
	}
	progress.Scanned += local.Scanned
	progress.Reset += local.Reset
	return progress, localErr
}

// Reset implements [limiters.Store]. A key may have counters in both stores, see [NewPerSecond].
func (s *PerSecond) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	found, err = s.main.Reset(ctx, keys)
	if err != nil {
		return found, err
	}
	inPerSecond, err := s.perSecond.Reset(ctx, keys)
	return orElementwise(found, inPerSecond), err
}

// Prefixes of cursors, which identify the store.
const mainCursor, perSecondCursor = "m", "s"

// ResetMatching implements [limiters.Store]. It passes over the main store and then over perSecond.
func (s *PerSecond) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (limiters.Progress, error) {
	if storeCursor, ok := strings.CutPrefix(cursor, perSecondCursor); ok {
		progress, err := s.perSecond.ResetMatching(ctx, match, storeCursor)
		if progress.Cursor != "" {
			progress.Cursor = perSecondCursor + progress.Cursor
		}
		return progress, err
	}
	storeCursor, ok := strings.CutPrefix(cursor, mainCursor)
	if !ok && cursor != "" {
		return limiters.Progress{}, limiters.ErrCursor
	}
	progress, err := s.main.ResetMatching(ctx, match, storeCursor)
	if err != nil {
		return progress, err
	}
	if progress.Cursor == "" {
		progress.Cursor = perSecondCursor // the pass over perSecond begins
	} else {
		progress.Cursor = mainCursor + progress.Cursor
	}
	return progress, nil
}

// orElementwise returns the elementwise or of a and b; missing elements are false.
func orElementwise(a, b []bool) []bool {
	for i := range b {
		if i < len(a) {
			a[i] = a[i] || b[i]
		}
	}
	return a
}
