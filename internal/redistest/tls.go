package redistest

import (
	"crypto/tls"
	"net"
	"os"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/certtest"
)

// StartTLS starts a Redis that accepts only TLS. Its certificate is for hosts, and clients need a
// certificate of the same authority. It ends with the test.
func StartTLS(tb testing.TB, a *certtest.Authority, hosts ...string) *Server {
	tb.Helper()
	needTLS(tb)
	addr, shown := FreeAddr(tb), a.Issue(tb, hosts...)
	// Tests may choose other hosts than the server's address.
	config := &tls.Config{Certificates: []tls.Certificate{a.Issue(tb, "client").Load(tb)}, InsecureSkipVerify: true}
	login := redis.Options{Addr: addr, TLSConfig: config}
	s, err := launch(login, arguments(addr, append(tlsSettings(a, addr, shown), "--port", "0")...))
	return stopAtCleanup(tb, s, err)
}

// tlsSettings returns the settings of a server with TLS on addr.
func tlsSettings(a *certtest.Authority, addr string, shown certtest.Pair) []string {
	_, port, _ := net.SplitHostPort(addr)
	return []string{"--tls-port", port, "--tls-cert-file", shown.Cert, "--tls-key-file", shown.Key, "--tls-ca-cert-file", a.File}
}

// needTLS skips the test if the server was built without TLS, see tools/stores.
func needTLS(tb testing.TB) {
	tb.Helper()
	if os.Getenv("STORE_WITHOUT_TLS") == "1" {
		tb.Skip("this server was built without TLS")
	}
}

// StartTLSCluster starts a cluster with TLS, with one certificate for hosts. Clients need no
// certificate. The tests' own clients use further ports without TLS, and the nodes report those to
// them. It returns the address of the first node.
func StartTLSCluster(tb testing.TB, a *certtest.Authority, nodes int, hosts []string, settings ...string) (*Cluster, string) {
	tb.Helper()
	needTLS(tb)
	shown, c, secure := a.Issue(tb, hosts...), &Cluster{}, []string(nil)
	for range nodes {
		addr, bus := freeForCluster(tb)
		_, port, _ := net.SplitHostPort(addr)
		s := Start(tb, slices.Concat(
			tlsSettings(a, addr, shown), []string{"--tls-cluster", "yes", "--tls-auth-clients", "no", "--cluster-announce-tls-port", port},
			clusterSettings(tb, bus, settings...))...)
		c.Servers, c.bus, secure = append(c.Servers, s), append(c.bus, bus), append(secure, addr)
	}
	c.form(tb, secure)
	return c, secure[0]
}
