package redisstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Reset implements [limiters.Store]. It bypasses the queue, because operators accept longer waits.
func (s *Store) Reset(ctx context.Context, names []limiters.StateName) (found []bool, err error) {
	if !s.enter() {
		return nil, ErrClosed
	}
	defer s.running.Done()
	found = make([]bool, len(names))
	for i, name := range names {
		n, err := s.unlink(ctx, string(s.namer.appendKey(nil, name.Key, name.ID)))
		if err != nil {
			return found, fmt.Errorf("redisstore: reset at %s: %w", s.address, explainError(err))
		}
		found[i] = n > 0
	}
	return found, nil
}

// unlink removes the key of a state and its extra keys, which share a slot. It returns the number of removed keys.
func (s *Store) unlink(ctx context.Context, key string) (int64, error) {
	return s.client.Unlink(ctx, key, key+reserveSuffix, key+penaltySuffix).Result()
}

// Bounds of one call of ResetMatching.
const (
	scanKeys  = 10_000
	scanTime  = time.Second
	scanCount = 500 // keys that Redis visits in one SCAN, a fraction of a millisecond
)

// ResetMatching implements [limiters.Store]. One call visits about 10,000 keys in up to about 1 s. In a cluster, it visits the
// masters in the order of their addresses. It may miss a key whose slot moves to another master meanwhile.
func (s *Store) ResetMatching(ctx context.Context, match func(hitKey string) bool, cursor string) (progress limiters.Progress, err error) {
	if s.namer.hasher != nil {
		return progress, limiters.ErrHiddenKeys
	}
	if !s.enter() {
		return progress, ErrClosed
	}
	defer s.running.Done()
	position, err := parseScan(cursor)
	if err != nil {
		return progress, err
	}
	deadline := time.Now().Add(scanTime)
	for visited := 0; visited < scanKeys && time.Now().Before(deadline); visited += scanCount {
		err = s.scan(ctx, &position, match, &progress)
		if err != nil {
			return progress, fmt.Errorf("redisstore: scan at %s: %w", s.address, explainError(err))
		}
		if position.done {
			return progress, nil
		}
	}
	progress.Cursor = position.String()
	return progress, nil
}

// A scanPosition is a position in a pass.
type scanPosition struct {
	node   string // the address of the master in a cluster; "" for the first
	cursor uint64
	done   bool
}

func (p scanPosition) String() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(p.cursor, 10) + " " + p.node))
}

func parseScan(text string) (p scanPosition, err error) {
	if text == "" {
		return p, nil
	}
	plain, err := base64.RawURLEncoding.DecodeString(text)
	cursor, node, found := strings.Cut(string(plain), " ")
	if err != nil || !found {
		return p, limiters.ErrCursor
	}
	p.cursor, err = strconv.ParseUint(cursor, 10, 64)
	if err != nil {
		return p, limiters.ErrCursor
	}
	p.node = node
	return p, nil
}

// scan visits some keys and advances the position.
func (s *Store) scan(ctx context.Context, position *scanPosition, match func(hitKey string) bool, progress *limiters.Progress) error {
	node, next, err := s.masterAt(ctx, position)
	if err != nil {
		return err
	}
	if node == nil { // there is no further master
		position.done = true
		return nil
	}
	keys, cursor, err := node.Scan(ctx, position.cursor, escapeGlob(s.namer.prefix+format)+"*", scanCount).Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		hitKey, ok := s.namer.parse(key)
		if !ok {
			continue
		}
		progress.Scanned++
		if !match(hitKey) {
			continue
		}
		// The scan also returns extra keys of a state. Removing one key of a state removes all.
		n, err := s.unlink(ctx, strings.TrimSuffix(strings.TrimSuffix(key, reserveSuffix), penaltySuffix))
		if err != nil {
			return err
		}
		progress.Reset += min(n, 1)
	}
	position.cursor = cursor
	if cursor == 0 {
		position.node, position.done = next, next == ""
	}
	return nil
}

// masterAt returns the client of the master at a position, and the address of the next master; "" after the last. If the cluster has
// lost that master, masterAt moves the position to the next one.
func (s *Store) masterAt(ctx context.Context, position *scanPosition) (node redis.Cmdable, next string, err error) {
	if s.cluster == nil {
		return s.client, "", nil
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(masters, func(m *redis.Client) bool { return m.Options().Addr >= position.node })
	if i < 0 {
		return nil, "", nil
	}
	if addr := masters[i].Options().Addr; addr != position.node {
		position.node, position.cursor = addr, 0
	}
	if i+1 < len(masters) {
		next = masters[i+1].Options().Addr
	}
	return masters[i], next, nil
}

// masters returns the masters of the cluster, sorted by address.
func (s *Store) masters(ctx context.Context) ([]*redis.Client, error) {
	var mu sync.Mutex
	var masters []*redis.Client
	err := s.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	slices.SortFunc(masters, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return masters, err
}

// escapeGlob returns a pattern that matches only text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`).Replace(text)
}
