package connect

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/weir-rls/weir/internal/socket"
)

// dialer returns a dial function for go-redis. Unlike go-redis' own, it returns a [socket.Wrap]
// connection, and ctx bounds the TLS handshake.
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
		c = socket.Wrap(c)
		config := o.TLS
		if o.CurrentTLS != nil {
			config = o.CurrentTLS()
		}
		if config == nil {
			return c, nil
		}
		return encrypt(ctx, c, addr, config)
	}
}

// encrypt adds TLS to c. The certificate must be valid for config.ServerName or, by default, for
// the host of addr.
func encrypt(ctx context.Context, c net.Conn, addr string, config *tls.Config) (net.Conn, error) {
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
		_ = c.Close() // the handshake's error is the useful one
		return nil, err
	}
	return t, nil
}
