package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/weir-rls/weir/internal/socket"
)

// dialer connects as go-redis does by itself, but to a socket.Quick one, and not longer than ctx with TLS either.
func (o Options) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	tcp := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, o.DialTimeout)
		defer cancel()
		c, err := tcp.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if c = socket.Quick(c); o.TLS == nil {
			return c, nil
		}
		return o.encrypted(ctx, c, addr)
	}
}

// encrypted is c with TLS. A certificate is to be for the host of addr, unless the options name another.
func (o Options) encrypted(ctx context.Context, c net.Conn, addr string) (net.Conn, error) {
	config := o.TLS
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			host = addr
		}
		config = config.Clone()
		config.ServerName = host
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close() // the handshake's error is the one
		return nil, err
	}
	return t, nil
}
