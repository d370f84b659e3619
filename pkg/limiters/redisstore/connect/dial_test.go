package connect

import (
	"crypto/tls"
	"testing"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
)

// Each connection uses the configuration of CurrentTLS, and verifies the host of its address.
func TestEachConnectionUsesTheCurrentTLS(t *testing.T) {
	authority, stranger := certtest.New(t), certtest.New(t)
	server := authority.Server(t, "127.0.0.1")
	server.ClientAuth = tls.NoClientCert
	listener, err := tls.Listen("tcp", "127.0.0.1:0", server)
	must.Succeed(t, err)
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_ = c.(*tls.Conn).Handshake()
				_ = c.Close()
			}()
		}
	}()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: stranger.Pool()}
	dial := Options{CurrentTLS: func() *tls.Config { return config }}.WithDefaults().dialer()
	connected := func() bool {
		c, err := dial(t.Context(), "tcp", listener.Addr().String())
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	if connected() {
		t.Error("connected to a server of another authority")
	}
	config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool()}
	if !connected() {
		t.Error("not connected with the new authority")
	}
	config = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool(), ServerName: "redis.example"}
	if connected() {
		t.Error("connected to a server of another name")
	}
}
