package redistest

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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Authority signs certificates, for a day.
type Authority struct {
	File string // its own, in PEM

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority, which ends with the test.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{File: filepath.Join(tb.TempDir(), "ca.pem"), key: newKey(tb)}
	der := a.sign(tb, &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "authority"},
	}, &a.key.PublicKey)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	a.cert = cert
	writePEM(tb, a.File, "CERTIFICATE", der)
	return a
}

// A Pair is the files of a certificate and of its key.
type Pair struct{ Cert, Key string }

// Issue makes a certificate for these hosts and addresses, which is one of a client's too, in files of its own.
func (a *Authority) Issue(tb testing.TB, hosts ...string) Pair {
	tb.Helper()
	dir := tb.TempDir()
	p := Pair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	a.IssueTo(tb, p, hosts...)
	return p
}

// IssueTo is Issue to given files, which are replaced.
func (a *Authority) IssueTo(tb testing.TB, p Pair, hosts ...string) {
	tb.Helper()
	template := &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		Subject:     pkix.Name{CommonName: "certificate"},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	key := newKey(tb)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	writePEM(tb, p.Key, "PRIVATE KEY", der)
	writePEM(tb, p.Cert, "CERTIFICATE", a.sign(tb, template, &key.PublicKey))
}

func (a *Authority) sign(tb testing.TB, template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return der
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return key
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}

// TLSSettings are the arguments of a redis-server that shows this certificate, and asks for one of the authority.
func (a *Authority) TLSSettings(p Pair) []string {
	return []string{"--tls-cert-file", p.Cert, "--tls-key-file", p.Key, "--tls-ca-cert-file", a.File}
}

// StartTLS starts a Redis that speaks TLS alone, with a certificate for these hosts, and asks for one of the same
// authority. It ends with the test.
func StartTLS(tb testing.TB, a *Authority, hosts ...string) *Server {
	tb.Helper()
	addr, own := FreeAddr(tb), a.Issue(tb, "client")
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	// Whether its name is right is the test's business.
	config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	login := redis.Options{Addr: addr, TLSConfig: config}
	host, port, _ := net.SplitHostPort(addr)
	args := append([]string{"--bind", host, "--port", "0", "--tls-port", port}, a.TLSSettings(a.Issue(tb, hosts...))...)
	s, err := launch(login, withoutDisk(args))
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	tb.Cleanup(s.Stop)
	return s
}
