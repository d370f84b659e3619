package redistest

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/certtest"
)

// StartTLS starts a Redis that accepts only TLS. Its certificate is for hosts, and clients need a certificate of the same
// authority. It ends with the test.
func StartTLS(tb testing.TB, a *certtest.Authority, hosts ...string) *Server {
	tb.Helper()
	addr, shown := FreeAddr(tb), a.Issue(tb, hosts...)
	// Tests may choose other hosts than the server's address.
	config := &tls.Config{Certificates: []tls.Certificate{a.Issue(tb, "client").Load(tb)}, InsecureSkipVerify: true}
	login := redis.Options{Addr: addr, TLSConfig: config}
	host, port, _ := net.SplitHostPort(addr)
	s, err := launch(login, withoutDisk([]string{
		"--bind", host, "--port", "0", "--tls-port", port,
		"--tls-cert-file", shown.Cert, "--tls-key-file", shown.Key, "--tls-ca-cert-file", a.File,
	}))
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}
