// Package certtest issues short-lived certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// An Authority is a test CA. All authorities have the same name, so that a client sends its
// certificate to a server that asks for another authority's, and the server must reject it.
type Authority struct {
	File string // its own certificate, in PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns a new authority whose files are deleted after the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{File: filepath.Join(tb.TempDir(), "ca.pem"), key: newKey(tb)}
	der := a.sign(tb, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "authority"},
	}, &a.key.PublicKey)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(tb, err)
	a.cert = cert
	writePEM(tb, a.File, "CERTIFICATE", der)
	return a
}

// Pool returns a pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Server returns a strict server configuration: TLS 1.3, a certificate for hosts, and required
// client certificates of this authority.
func (a *Authority) Server(tb testing.TB, hosts ...string) *tls.Config {
	tb.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{a.Issue(tb, hosts...).Load(tb)},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.Pool(),
	}
}

// A Pair names the PEM files of a certificate and its key.
type Pair struct{ Cert, Key string }

// Load reads the certificate and its key.
func (p Pair) Load(tb testing.TB) tls.Certificate {
	tb.Helper()
	pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	must.Succeed(tb, err)
	return pair
}

// Issue issues a certificate for servers and clients with these hosts, addresses and URIs, in new
// files.
func (a *Authority) Issue(tb testing.TB, hosts ...string) Pair {
	tb.Helper()
	dir := tb.TempDir()
	p := Pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	a.IssueTo(tb, p, hosts...)
	return p
}

// IssueTo is [Authority.Issue] into existing files. It replaces the key first.
func (a *Authority) IssueTo(tb testing.TB, p Pair, hosts ...string) {
	tb.Helper()
	template := &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		Subject:     pkix.Name{CommonName: "certificate"},
	}
	for _, host := range hosts {
		switch ip := net.ParseIP(host); {
		case ip != nil:
			template.IPAddresses = append(template.IPAddresses, ip)
		case strings.Contains(host, "://"):
			u, err := url.Parse(host)
			must.Succeed(tb, err)
			template.URIs = append(template.URIs, u)
		default:
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey(tb)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(tb, err)
	writePEM(tb, p.Key, "PRIVATE KEY", der)
	writePEM(tb, p.Cert, "CERTIFICATE", a.sign(tb, template, &key.PublicKey))
}

func (a *Authority) sign(tb testing.TB, template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must.Succeed(tb, err)
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	must.Succeed(tb, err)
	return der
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(tb, err)
	return key
}

// writePEM replaces a file by renaming, like a mounted Secret, so that readers never see a partial
// file.
func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	must.Succeed(tb, os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	must.Succeed(tb, os.Rename(path+".new", path))
}
