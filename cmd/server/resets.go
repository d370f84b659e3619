package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore"
)

// resets reset keys in the store, and notify the other replicas, which cache denials and local counters. docs/adr/0020-admin-api.md
// explains the order of the steps.
type resets struct {
	store    *store
	messages *redisstore.Messages // nil without Redis
	panicked recovery.Report
	log      *zap.Logger
}

// A resetMessage names reset keys: by their names, or by a domain and an entry.
type resetMessage struct {
	Keys   []limiters.Keyed `json:"keys,omitempty"`
	Domain string           `json:"domain,omitempty"`
	Entry  [2]string        `json:"entry,omitzero"`
}

func (m resetMessage) matcher() func(key string) bool {
	return descriptors.EntryMatcher(m.Domain, descriptors.Entry{Key: m.Entry[0], Value: m.Entry[1]})
}

// newResets returns the resets of a store. redis is the server that carries the messages; nil without Redis.
func newResets(s *store, redis *redisBackend, log *zap.Logger, panicked recovery.Report) (*resets, error) {
	r := &resets{store: s, log: log, panicked: panicked}
	if redis == nil {
		return r, nil
	}
	var err error
	r.messages, err = redis.Messages("resets")
	return r, err
}

// resetDelay is the delay between the first message and the reset. Without it, denied hits that another replica has buffered
// could arrive after the reset and charge the key again.
const resetDelay = 20 * time.Millisecond

// Reset implements admin.Resets.
func (r *resets) Reset(ctx context.Context, keys []limiters.Keyed) (found []bool, notified bool, err error) {
	notified, err = r.resetAndNotify(ctx, resetMessage{Keys: keys}, func() error {
		found, err = r.store.fallback.Reset(ctx, keys)
		return err
	})
	return found, notified, err
}

// ResetEntry implements admin.Resets.
func (r *resets) ResetEntry(
	ctx context.Context, domain string, entry descriptors.Entry, cursor string,
) (done limiters.Progress, notified bool, err error) {
	message := resetMessage{Domain: domain, Entry: [2]string{entry.Key, entry.Value}}
	notified, err = r.resetAndNotify(ctx, message, func() error {
		done, err = r.store.fallback.ResetMatching(ctx, message.matcher(), cursor)
		return err
	})
	return done, notified, err
}

// resetAndNotify sends m before and after reset. It reports whether the second message was sent or is not needed. It sends the second
// message even if reset failed, because some states may be removed.
func (r *resets) resetAndNotify(ctx context.Context, m resetMessage, reset func() error) (notified bool, err error) {
	if r.messages == nil {
		return true, reset()
	}
	text, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	if r.messages.Publish(ctx, text) == nil {
		_ = backoff.Sleep(ctx, resetDelay)
	}
	failed := reset()
	if failed != nil { // ctx may have ended
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), adminStoreTimeout)
		defer cancel()
	}
	err = r.messages.Publish(ctx, text)
	if failed != nil {
		return false, failed
	}
	if err != nil {
		r.log.Warn("other replicas not notified of a reset", zap.Error(err), zap.String("remedy", messagesRemedy))
		return false, nil
	}
	return true, nil
}

// messagesRemedy is the remedy if messages of resets fail.
const messagesRemedy = "give Weir's Redis user the permission to publish and subscribe: SECURITY.md lists it"

// subscribeBackoff is the wait between attempts to subscribe.
var subscribeBackoff = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// run receives the resets of other replicas, and forgets the denials of these keys, until ctx ends. After a lost connection it
// forgets all denials, because it may have missed messages.
func (r *resets) run(ctx context.Context) {
	if r.messages == nil {
		return
	}
	for failures := 0; ; failures++ {
		err := r.messages.Receive(ctx, func() {
			failures = 0
			r.forget(nil, func(string) bool { return true })
		}, r.received)
		if ctx.Err() != nil {
			return
		}
		if failures == 1 {
			r.log.Warn("resets by other replicas are not received", zap.Error(err), zap.String("remedy", messagesRemedy))
		}
		if backoff.Sleep(ctx, subscribeBackoff.Wait(failures)) != nil {
			return
		}
	}
}

var errResetMessage = errors.New("the message is from another version of Weir: run one version on all replicas")

func (r *resets) received(text []byte) {
	defer r.panicked.Recover("reset message") // no handler recovers on this goroutine
	var m resetMessage
	if err := json.Unmarshal(text, &m); err != nil || len(m.Keys) == 0 && m.Entry[0] == "" {
		r.log.Warn("reset by another replica not understood", zap.Error(errResetMessage))
		return
	}
	if len(m.Keys) > 0 {
		r.forget(m.Keys, nil)
		_, _ = r.store.local.Reset(context.Background(), m.Keys) // it fails only if its context ends
		return
	}
	r.forget(nil, m.matcher())
	_, _ = r.store.local.ResetMatching(context.Background(), m.matcher(), "")
}

// forget removes the denials of keys, or of all keys that match.
func (r *resets) forget(keys []limiters.Keyed, match func(key string) bool) {
	cache := r.store.denyCache
	switch {
	case cache == nil:
	case match != nil:
		cache.ForgetMatching(match)
	default:
		cache.ForgetKeys(keys)
	}
}
