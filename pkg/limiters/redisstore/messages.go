package redisstore

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Messages is a Redis channel between processes that share a Redis, a prefix and a secret. With a secret, messages are encrypted
// and authenticated. Delivery is at most once, to the processes that are connected.
type Messages struct {
	store   *Store
	channel string
	sealer  cipher.AEAD // nil without a secret
}

// maxMessage bounds a received message, in bytes.
const maxMessage = 1 << 20

// Messages returns the channel with a name.
func (s *Store) Messages(name string) (*Messages, error) {
	m := &Messages{store: s, channel: s.namer.prefix + format + ":" + name}
	if s.namer.hasher == nil {
		return m, nil
	}
	block, err := aes.NewCipher(s.namer.hasher.derive("weir messages " + name))
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	m.sealer, err = cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return m, nil
}

// Publish sends a message to all processes, including this one.
func (m *Messages) Publish(ctx context.Context, message []byte) error {
	if !m.store.enter() {
		return ErrClosed
	}
	defer m.store.running.Done()
	if m.sealer != nil {
		message = m.sealer.Seal(nil, nil, message, []byte(m.channel))
	}
	if err := m.store.client.Publish(ctx, m.channel, message).Err(); err != nil {
		return m.store.failure("publish", err)
	}
	return nil
}

// pingInterval is the idle time after which Receive checks the connection.
const pingInterval = 5 * time.Second

var errEnded = errors.New("the subscription has ended")

// Receive passes messages to received until ctx ends or the connection fails. It calls connected once subscribed, because messages
// before that are lost. It drops messages that are not authentic.
func (m *Messages) Receive(ctx context.Context, connected func(), received func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !m.store.enter() {
		return ErrClosed
	}
	defer m.store.running.Done()
	defer context.AfterFunc(m.store.ctx, cancel)()
	subscription := m.store.client.Subscribe(ctx)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // a read does not end with ctx
	if err := subscription.Subscribe(ctx, m.channel); err != nil {
		return m.store.failure("subscribe", err)
	}
	for {
		// Redis answers a ping after pingInterval, which reveals a dead connection.
		event, err := subscription.ReceiveTimeout(ctx, pingInterval)
		if isTimeout(err) {
			err = subscription.Ping(ctx)
			if err == nil {
				event, err = subscription.ReceiveTimeout(ctx, pingInterval)
			}
		}
		if err != nil {
			return m.store.failure("subscribe", err)
		}
		switch e := event.(type) {
		case *redis.Subscription:
			if e.Kind != "subscribe" {
				return m.store.failure("subscribe", errEnded)
			}
			connected()
		case *redis.Message:
			if message, ok := m.open(e.Payload); ok {
				received(message)
			}
		}
	}
}

func (m *Messages) open(payload string) (message []byte, ok bool) {
	if len(payload) > maxMessage {
		return nil, false
	}
	if m.sealer == nil {
		return []byte(payload), true
	}
	message, err := m.sealer.Open(nil, nil, []byte(payload), []byte(m.channel))
	return message, err == nil
}
