package xds_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// An authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	a := &authority{t: t, key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// sign gives a certificate for a name, and its key.
func (a *authority) sign(name string) (cert, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, private.Public(), a.key)
	must(a.t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must(a.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// serveTLS is a server as Envoy Gateway's: TLS 1.3 alone, clients show a certificate, its name is envoy-gateway.
func (a *authority) serveTLS() *server {
	a.t.Helper()
	cert, err := tls.X509KeyPair(a.sign("envoy-gateway"))
	must(a.t, err)
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	return serve(a.t, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	})))
}

// files writes what a client of the authority needs.
func (a *authority) files() xds.TLSFiles {
	a.t.Helper()
	dir := a.t.TempDir()
	f := xds.TLSFiles{CA: dir + "/ca.crt", Cert: dir + "/tls.crt", Key: dir + "/tls.key", ServerName: "envoy-gateway"}
	a.write(f)
	return f
}

func (a *authority) write(f xds.TLSFiles) {
	a.t.Helper()
	cert, key := a.sign("envoy-ratelimit")
	for path, data := range map[string][]byte{f.CA: a.pem, f.Cert: cert, f.Key: key} {
		must(a.t, os.WriteFile(path, data, 0o600))
	}
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	s := a.serveTLS()
	start(t, &xds.Source{Server: s.address, TLS: a.files().Config})
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestWhoIsNotTrustedIsNotTalkedTo(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	for name, c := range map[string]struct {
		change func(*xds.TLSFiles)
		want   string // a client that the server turns away may only see that the connection is gone
	}{
		"another server's name":    {func(f *xds.TLSFiles) { f.ServerName = "envoy-proxy" }, "envoy-gateway"},
		"the host is not its name": {func(f *xds.TLSFiles) { f.ServerName = "" }, "127.0.0.1"},
		"an unknown authority":     {func(f *xds.TLSFiles) { f.CA = stranger.files().CA }, "authority"},
		"the system's authorities": {func(f *xds.TLSFiles) { f.CA = "" }, "authority"},
		"no certificate":           {func(f *xds.TLSFiles) { f.Cert, f.Key = "", "" }, ""},
		"a stranger's certificate": {func(f *xds.TLSFiles) { o := stranger.files(); f.Cert, f.Key = o.Cert, o.Key }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, files := &authority{t, a.cert, a.key, a.pem}, a.files()
			c.change(&files)
			s := a.serveTLS()
			w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
			if e := w.next(xds.Disconnected); e.Err == nil || !strings.Contains(e.Err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", e.Err, c.want)
			}
			none(t, s.streams, "a stream was opened")
		})
	}
	t.Run("cleartext", func(t *testing.T) {
		a := &authority{t, a.cert, a.key, a.pem}
		w := start(t, &xds.Source{Server: a.serveTLS().address})
		if e := w.next(xds.Disconnected); e.Err == nil {
			t.Error("no error")
		}
	})
}

func TestReplacedCertificatesCountFromTheNextConnectionOn(t *testing.T) {
	old, young := newAuthority(t), newAuthority(t)
	files := old.files()
	s := young.serveTLS()
	w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
	w.next(xds.Disconnected)
	must(t, os.Remove(files.Key))
	for {
		if e := w.next(xds.Disconnected); strings.Contains(e.Err.Error(), files.Key) {
			break
		}
	}
	young.write(files)
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	a := newAuthority(t)
	good := a.files()
	junk := t.TempDir() + "/junk"
	must(t, os.WriteFile(junk, []byte("junk"), 0o600))
	for _, change := range []func(f *xds.TLSFiles) string{
		func(f *xds.TLSFiles) string { f.CA = "/no/ca"; return f.CA },
		func(f *xds.TLSFiles) string { f.CA = junk; return f.CA },
		func(f *xds.TLSFiles) string { f.Cert = junk; return f.Cert },
		func(f *xds.TLSFiles) string { f.Cert = ""; return f.Key },
		func(f *xds.TLSFiles) string { f.Key = ""; return f.Cert },
		func(f *xds.TLSFiles) string { f.Key = "/no/key"; return f.Key },
	} {
		f := good
		name := change(&f)
		if _, err := f.Config(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%+v: %v, want %s in it", f, err, name)
		}
	}
}
