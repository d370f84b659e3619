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

// A PubSub is a Redis channel between processes that share a Redis, a prefix and a secret. With a
// secret, messages are encrypted and authenticated. Delivery is at most once, to the processes that
// are connected.
type PubSub struct {
	store   *Store
	channel string
	sealer  cipher.AEAD // nil without a secret
}

// maxMessageBytes bounds a received message, in bytes.
const maxMessageBytes = 1 << 20

// PubSub returns the channel with a name.
func (s *Store) PubSub(name string) (*PubSub, error) {
	p := &PubSub{store: s, channel: s.namer.keyPrefix + keyFormat + ":" + name}
	if s.namer.hasher == nil {
		return p, nil
	}
	block, err := aes.NewCipher(s.namer.hasher.derive("weir messages " + name))
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	p.sealer, err = cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return p, nil
}

// Publish sends a message to all processes, including this one.
func (p *PubSub) Publish(ctx context.Context, message []byte) error {
	if !p.store.enter() {
		return ErrClosed
	}
	defer p.store.running.Done()
	if p.sealer != nil {
		message = p.sealer.Seal(nil, nil, message, []byte(p.channel))
	}
	if err := p.store.client.Publish(ctx, p.channel, message).Err(); err != nil {
		return p.store.failure("publish", err)
	}
	return nil
}

// pingInterval is the idle time after which Receive checks the connection.
const pingInterval = 5 * time.Second

var errEnded = errors.New("the subscription has ended")

// Receive passes messages to received until ctx ends or the connection fails. It calls connected
// once subscribed, because messages before that are lost. It drops messages that are not authentic.
func (p *PubSub) Receive(ctx context.Context, connected func(), received func([]byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !p.store.enter() {
		return ErrClosed
	}
	defer p.store.running.Done()
	defer context.AfterFunc(p.store.ctx, cancel)()
	subscription := p.store.client.Subscribe(ctx)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // a read does not end with ctx
	if err := subscription.Subscribe(ctx, p.channel); err != nil {
		return p.store.failure("subscribe", err)
	}
	for {
		// Redis answers a ping after pingInterval, which reveals a dead connection.
		event, err := receiveEvent(ctx, subscription)
		if isTimeout(err) {
			err = subscription.Ping(ctx)
			if err == nil {
				event, err = receiveEvent(ctx, subscription)
			}
		}
		if err != nil {
			return p.store.failure("subscribe", err)
		}
		switch e := event.(type) {
		case *redis.Subscription:
			if e.Kind != "subscribe" {
				return p.store.failure("subscribe", errEnded)
			}
			connected()
		case *redis.Message:
			if message, ok := p.open(e.Payload); ok {
				received(message)
			}
		}
	}
}

// errMalformedEvent reports an event of a wrong form.
var errMalformedEvent = errors.New("redis sent a malformed message: check that REDIS_URL names a Redis")

// receiveEvent receives an event for at most pingInterval. go-redis panics on a malformed event.
func receiveEvent(ctx context.Context, subscription *redis.PubSub) (event any, err error) {
	defer func() {
		if recover() != nil {
			event, err = nil, errMalformedEvent
		}
	}()
	return subscription.ReceiveTimeout(ctx, pingInterval)
}

func (p *PubSub) open(payload string) (message []byte, ok bool) {
	if len(payload) > maxMessageBytes {
		return nil, false
	}
	if p.sealer == nil {
		return []byte(payload), true
	}
	message, err := p.sealer.Open(nil, nil, []byte(payload), []byte(p.channel))
	return message, err == nil
}
