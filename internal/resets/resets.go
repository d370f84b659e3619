// Package resets removes keys from the store, and their cached denials and local counters from all
// replicas.
package resets

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/recovery"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

// A PubSub is a channel between all replicas, such as PubSub of package redisstore.
type PubSub interface {
	// Publish sends a message to the replicas that are connected.
	Publish(ctx context.Context, message []byte) error
	// Receive calls connected once it is connected, and then received with each message, until ctx
	// ends or the connection is lost.
	Receive(ctx context.Context, connected func(), received func([]byte)) error
}

// A Service removes the usage of keys from the store, and notifies the other replicas, which cache
// denials and local counters. docs/adr/0020-admin-api.md explains the order of the steps.
type Service struct {
	Store     limiters.Store   // its resets include its deny cache and its local counters
	Local     limiters.Store   // the local counters of Store, in memory; not used without PubSub
	DenyCache *guard.DenyCache // nil if disabled
	PubSub    PubSub           // nil if no other replica shares the store
	// Warn receives the failures of messages. The error is ErrMessage if another version of Weir
	// has sent the message.
	Warn     func(what string, err error)
	Panicked recovery.Report
}

// A message names reset keys: by their names, or by a domain and an entry.
type message struct {
	Keys   []limiters.StateName `json:"keys,omitempty"`
	Domain string               `json:"domain,omitempty"`
	Entry  [2]string            `json:"entry,omitzero"`
	// Announcement marks the message before the reset. The replicas keep their local counters at
	// it, because the store may still reject the reset.
	Announcement bool `json:"before,omitempty"`
}

func (m message) matcher() func(key string) bool {
	return descriptors.EntryMatcher(m.Domain, descriptors.Entry{Key: m.Entry[0], Value: m.Entry[1]})
}

// resetDelay is the delay between the first message and the reset. Without it, denied hits that
// another replica has buffered could arrive after the reset and charge the key again.
const resetDelay = 20 * time.Millisecond

// publishTimeout bounds the second message of a reset that failed.
const publishTimeout = time.Second

// Reset implements admin.Resets.
func (s *Service) Reset(ctx context.Context, keys []limiters.StateName) (found []bool, notified bool, err error) {
	notified, err = s.resetAndNotify(ctx, message{Keys: keys}, func() error {
		found, err = s.Store.Reset(ctx, keys)
		return err
	})
	return found, notified, err
}

// ResetByEntry implements admin.Resets.
func (s *Service) ResetByEntry(
	ctx context.Context, domain string, entry descriptors.Entry, cursor string,
) (done limiters.Progress, notified bool, err error) {
	m := message{Domain: domain, Entry: [2]string{entry.Key, entry.Value}}
	notified, err = s.resetAndNotify(ctx, m, func() error {
		done, err = s.Store.ResetMatching(ctx, m.matcher(), cursor)
		return err
	})
	return done, notified, err
}

// resetAndNotify sends m before and after reset. If it returns no error, notified reports whether
// both messages were sent or are not needed. It sends the second message even if reset failed,
// because some states may be removed, but not if the store rejected it.
func (s *Service) resetAndNotify(ctx context.Context, m message, reset func() error) (notified bool, err error) {
	if s.PubSub == nil {
		return true, reset()
	}
	first := m
	first.Announcement = true
	err = s.publish(ctx, first)
	if err == nil {
		_ = backoff.Sleep(ctx, resetDelay)
	}
	resetErr := reset()
	if limiters.IsRejectedReset(resetErr) {
		return false, resetErr
	}
	if resetErr != nil { // ctx may have ended
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
		defer cancel()
	}
	err = cmp.Or(err, s.publish(ctx, m))
	if resetErr != nil {
		return false, resetErr
	}
	if err != nil {
		s.Warn("other replicas not fully notified of a reset", err)
		return false, nil
	}
	return true, nil
}

func (s *Service) publish(ctx context.Context, m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.PubSub.Publish(ctx, text)
}

// subscribeBackoff is the wait between attempts to subscribe.
var subscribeBackoff = backoff.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second}

// Run receives the resets of other replicas, and forgets the denials of these keys, until ctx ends.
// At each connection it clears the deny cache, because it may have missed messages about any key.
func (s *Service) Run(ctx context.Context) {
	if s.PubSub == nil {
		return
	}
	for failures := 0; ; failures++ {
		err := s.PubSub.Receive(ctx, func() {
			failures = 0
			s.DenyCache.ForgetAll()
		}, s.received)
		if ctx.Err() != nil {
			return
		}
		if failures == 1 { // the second in a row, because one lost connection is normal
			s.Warn("resets by other replicas are not received", err)
		}
		if backoff.Sleep(ctx, subscribeBackoff.Wait(failures)) != nil {
			return
		}
	}
}

// ErrMessage is passed to Warn for a message that Weir does not understand.
var ErrMessage = errors.New("the message is from another version of Weir: run one version on all replicas")

func (s *Service) received(text []byte) {
	defer s.Panicked.Recover("reset message") // no handler recovers on this goroutine
	var m message
	if err := json.Unmarshal(text, &m); err != nil || len(m.Keys) == 0 && m.Entry[0] == "" {
		s.Warn("reset message from another replica is invalid", ErrMessage)
		return
	}
	ctx := context.Background() // only its end would fail the calls of Local
	if len(m.Keys) > 0 {
		s.DenyCache.ForgetKeys(m.Keys)
		if !m.Announcement {
			_, _ = s.Local.Reset(ctx, m.Keys)
		}
		return
	}
	s.DenyCache.ForgetMatching(m.matcher())
	if !m.Announcement {
		_, _ = s.Local.ResetMatching(ctx, m.matcher(), "")
	}
}
