package listeners

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key, a.pem, _ = certificate(t, name, nil)
	return a
}

// certificate makes one for a name, signed by an authority, or by itself where there is none.
func certificate(t *testing.T, name string, by *authority) (*x509.Certificate, *ecdsa.PrivateKey, []byte, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        by == nil, BasicConstraintsValid: true,
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) pair(name string) (certPEM, keyPEM []byte) {
	_, _, certPEM, keyPEM = certificate(a.t, name, a)
	return certPEM, keyPEM
}

func write(t *testing.T, path string, data []byte) string {
	t.Helper()
	// A rename, as a mounted Secret does it: no reader sees half a file.
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve answers each connection with a byte, until the test ends.
func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := TCP("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				s := tls.Server(c, config)
				_, _ = s.Write([]byte("!"))
				_ = s.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// greet connects and tells the name of the server's certificate.
func greet(addr string, config *tls.Config) (string, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, config)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	if c.ConnectionState().NegotiatedProtocol != "h2" {
		return "", errors.New("no h2")
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	cert, key := ca.pair("first")
	files := TLS{Cert: write(t, dir+"/tls.crt", cert), Key: write(t, dir+"/tls.key", key)}
	failures := make(chan error, 100)
	config, err := files.Config(func(err error) { failures <- err })
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, config)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	expect := func(name string) {
		t.Helper()
		client := &tls.Config{RootCAs: roots, ServerName: name, NextProtos: []string{"h2"}}
		if got, err := greet(addr, client); err != nil || got != name {
			t.Errorf("%q, %v, want %q", got, err, name)
		}
	}
	expect("first")

	write(t, files.Cert, []byte("half a certifica"))
	expect("first")
	expect("first")
	if len(failures) != 1 {
		t.Errorf("told %d times of one bad file", len(failures))
	}
	if err := <-failures; !strings.Contains(err.Error(), files.Cert) {
		t.Errorf("%v: does not name the file", err)
	}
	cert, key = ca.pair("second")
	write(t, files.Key, key)
	write(t, files.Cert, cert)
	expect("second")
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	expect("second")
}

func TestClientsMustShowWhoTheyAre(t *testing.T) {
	ca, other, dir := newAuthority(t, "ca"), newAuthority(t, "other"), t.TempDir()
	cert, key := ca.pair("weir")
	files := TLS{
		Cert: write(t, dir+"/tls.crt", cert), Key: write(t, dir+"/tls.key", key),
		ClientCA: write(t, dir+"/ca.crt", ca.pem), ClientSAN: "envoy",
	}
	config, err := files.Config(func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, config)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	for _, c := range []struct {
		who  string
		by   *authority
		want bool
	}{
		{"envoy", ca, true}, {"mallory", ca, false}, {"envoy", other, false}, {"", nil, false},
	} {
		client := &tls.Config{RootCAs: roots, ServerName: "weir", NextProtos: []string{"h2"}}
		if c.by != nil {
			pair, err := tls.X509KeyPair(c.by.pair(c.who))
			if err != nil {
				t.Fatal(err)
			}
			client.Certificates = []tls.Certificate{pair}
		}
		if _, err := greet(addr, client); (err == nil) != c.want {
			t.Errorf("%q: %v, want let in: %v", c.who, err, c.want)
		}
	}
}

func TestWhatCannotBeServedIsAnErrorThatNamesIt(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	cert, key := ca.pair("weir")
	certFile, keyFile := write(t, dir+"/tls.crt", cert), write(t, dir+"/tls.key", key)
	for want, files := range map[string]TLS{
		"both a certificate and a key": {Cert: certFile},
		"wants a CA":                   {Cert: certFile, Key: keyFile, ClientSAN: "envoy"},
		"none.crt":                     {Cert: dir + "/none.crt", Key: keyFile},
		"tls.key":                      {Cert: keyFile, Key: keyFile},
		"none.pem":                     {Cert: certFile, Key: keyFile, ClientCA: dir + "/none.pem"},
		"holds no PEM certificate":     {Cert: certFile, Key: keyFile, ClientCA: keyFile},
	} {
		if _, err := files.Config(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}

func TestAHostMayStandInBrackets(t *testing.T) {
	l, err := TCP("[::1]", 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestAUnixSocketThatWasLeftBehindIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "another process listens on "+path) {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	l, err = Unix(path)
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	_ = l.Close()
	write(t, path, []byte("data"))
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file is gone: %q, %v", data, err)
	}
}
