package redisstore

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
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
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = string(s.namer.appendKey(nil, name.Key, name.ID))
	}
	found, err = s.unlink(ctx, keys)
	if err != nil {
		err = s.failure("reset", err)
	}
	return found, err
}

// unlink removes the keys of states and their extra keys, in one round trip to each node. It
// reports for each state whether it had a key. The keys of a state share a hash slot. While the
// hash slot moves, Redis answers TRYAGAIN unless one master has all of them, so each key is then
// removed by itself.
func (s *Store) unlink(ctx context.Context, keys []string) (found []bool, err error) {
	pipeline, commands := s.client.Pipeline(), make([]unlinkCommand, len(keys))
	for i, key := range keys {
		arguments := []any{"unlink"}
		for _, stateKey := range stateKeys(key) {
			arguments = append(arguments, stateKey)
		}
		commands[i] = unlinkCommand{redis.NewIntCmd(ctx, arguments...)}
		_ = pipeline.Process(ctx, commands[i]) // only adds the command
	}
	_, _ = pipeline.Exec(ctx) // each command has its error
	found = make([]bool, len(keys))
	for i, command := range commands {
		removed, err := command.Result()
		if redis.IsTryAgainError(err) {
			removed, err = s.unlinkEach(ctx, stateKeys(keys[i]))
		}
		if err != nil {
			return found, err
		}
		found[i] = removed > 0
	}
	return found, nil
}

// unlinkEach removes keys one by one, and returns the number of removed keys.
func (s *Store) unlinkEach(ctx context.Context, keys []string) (removed int64, err error) {
	for _, key := range keys {
		n, err := s.client.Unlink(ctx, key).Result()
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// stateKeys returns the key of a state and its extra keys.
func stateKeys(key string) []string {
	var keys []string
	for _, suffix := range keySuffixes {
		keys = append(keys, key+suffix)
	}
	return keys
}

// An unlinkCommand removes the keys of a state.
type unlinkCommand struct{ *redis.IntCmd }

// NoRetry prevents go-redis' cluster client from repeating the command while the hash slot moves.
// It would pause before each attempt, and one step of a pass may remove hundreds of keys of the
// hash slot.
func (c unlinkCommand) NoRetry() bool { return redis.IsTryAgainError(c.Err()) }

// Bounds of one call of ResetMatching.
const (
	scanKeys  = 10_000
	scanTime  = time.Second
	scanCount = 500 // keys that Redis visits in one SCAN, a fraction of a millisecond
)

// ResetMatching implements [limiters.Store]. One call visits about 10,000 keys in up to about 1 s.
// In a cluster, it visits the masters in the order of their addresses. It may miss a key whose hash
// slot moves to another master meanwhile.
func (s *Store) ResetMatching(ctx context.Context, match func(opKey string) bool, cursor string) (progress limiters.Progress, err error) {
	if s.namer.hasher != nil {
		return progress, limiters.ErrHashedKeys
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
			return progress, s.failure("scan", err)
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
	node   string // as in master; "" for the first
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

// scan visits some keys and advances the position. If the cluster has lost the master at the
// position, the scan continues with the next.
func (s *Store) scan(ctx context.Context, position *scanPosition, match func(opKey string) bool, progress *limiters.Progress) error {
	masters, err := s.topology.masters(ctx)
	if err != nil {
		return err
	}
	if position.node != "" && masters[0].node == "" {
		return limiters.ErrCursor // the cursor comes from a cluster
	}
	i := slices.IndexFunc(masters, func(m master) bool { return m.node >= position.node })
	if i < 0 {
		position.done = true
		return nil
	}
	m := masters[i]
	if m.node != position.node {
		*position = scanPosition{node: m.node}
	}
	keys, cursor, err := m.client.Scan(ctx, position.cursor, escapeGlob(s.namer.keyPrefix+keyFormat)+"*", scanCount).Result()
	if err != nil {
		return err
	}
	found, err := s.unlink(ctx, s.matchingStates(keys, match, progress))
	for _, had := range found {
		if had {
			progress.Reset++
		}
	}
	if err != nil {
		return err
	}
	switch {
	case cursor > 0:
		position.cursor = cursor
	case i+1 < len(masters):
		*position = scanPosition{node: masters[i+1].node}
	default:
		position.done = true
	}
	return nil
}

// matchingStates returns the keys of the states with a matching opKey, each once, and counts the
// scanned keys. A scan also returns the extra keys of a state.
func (s *Store) matchingStates(keys []string, match func(opKey string) bool, progress *limiters.Progress) []string {
	var states []string
	for _, key := range keys {
		opKey, ok := s.namer.parse(key)
		if !ok {
			continue
		}
		progress.Scanned++
		if match(opKey) {
			for _, suffix := range keySuffixes {
				key = strings.TrimSuffix(key, suffix)
			}
			states = append(states, key)
		}
	}
	slices.Sort(states)
	return slices.Compact(states)
}

// escapeGlob returns a pattern that matches only text.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`).Replace(text)
}
