package memstore

import (
	"context"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reset implements [limiters.Store]. It locks one shard at a time.
func (s *Store) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, err error) {
	found = make([]bool, len(keys))
	for i, k := range keys {
		if err := ctx.Err(); err != nil {
			return found, err
		}
		n, hash := s.locate(k.Key, k.Window)
		sh := &s.shards[n]
		sh.mu.Lock()
		found[i] = s.resetKey(sh, hash, k)
		sh.mu.Unlock()
	}
	return found, nil
}

// resetKey resets a key and reports whether it had not expired. The lock of sh must be held.
func (s *Store) resetKey(sh *shard, hash uint32, k limiters.StateName) (found bool) {
	p := sh.find(hash, k.Key, k.ID)
	if p == 0 {
		return false
	}
	found = sh.record(p).expiry() > s.clock()
	s.removeRecord(sh, p)
	return found
}

// ResetMatching implements [limiters.Store]. One call is a whole pass, so only the empty cursor is
// valid. It locks a shard for one subindex at a time, about 2,400 of 10 million keys. A key never
// changes its subindex, so none is missed.
func (s *Store) ResetMatching(ctx context.Context, match func(key string) bool, cursor string) (progress limiters.Progress, err error) {
	if cursor != "" {
		return progress, limiters.ErrCursor
	}
	for i := range s.shards {
		if s.shards[i].recordCount.Load() == 0 {
			continue
		}
		for n := range subindexes {
			if err := ctx.Err(); err != nil {
				return progress, err
			}
			scanned, reset := s.resetSubindex(&s.shards[i], n, match)
			progress.Scanned += scanned
			progress.Reset += reset
		}
	}
	return progress, nil
}

func (s *Store) resetSubindex(sh *shard, n int, match func(key string) bool) (scanned, reset int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// Removing a record moves others, so the keys are collected first.
	var keys []limiters.StateName
	var hashes []uint32
	for _, cell := range sh.index[n].cells {
		if cell == 0 {
			continue
		}
		scanned++
		r := sh.record(position(cell))
		if key := string(sh.key(r)); match(key) {
			keys, hashes = append(keys, sh.limits.get(r.limitIndex()).StateName(key)), append(hashes, r.hash())
		}
	}
	for i, k := range keys {
		if s.resetKey(sh, hashes[i], k) {
			reset++
		}
	}
	return scanned, reset
}
