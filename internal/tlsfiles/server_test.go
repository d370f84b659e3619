package tlsfiles

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
)

// serve answers each connection with one byte, until the test ends.
func serve(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
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

// greet connects and returns the name in the server's certificate.
func greet(addr string, config *tls.Config) (string, error) {
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 2 * time.Minute}, "tcp", addr, config)
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
	return c.ConnectionState().PeerCertificates[0].DNSNames[0], nil
}

func TestServerReloadsChangedCertificates(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, "first")
	files := Server{Cert: pair.Cert, Key: pair.Key}
	failures := make(chan error, 100)
	config, err := files.Config(func(err error) { failures <- err })
	must.Succeed(t, err)
	addr := serve(t, config)
	expect := func(name string) {
		t.Helper()
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: name, NextProtos: []string{"h2"}}
		if got, err := greet(addr, client); err != nil || got != name {
			t.Errorf("%q, %v, want %q", got, err, name)
		}
	}
	expect("first")

	must.Write(t, pair.Cert, "half a certifica")
	expect("first")
	expect("first")
	if len(failures) != 1 {
		t.Errorf("%d errors reported for one bad file, want 1", len(failures))
	}
	if err := <-failures; !strings.Contains(err.Error(), pair.Cert) {
		t.Errorf("%v: want the name of the file", err)
	}
	ca.IssueTo(t, pair, "second")
	expect("second")
	must.Succeed(t, os.Remove(pair.Cert))
	expect("second")
}

func TestExpiredServerCertificateIsReportedForEachLoad(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, "weir")
	var reports []string
	files := Server{Cert: pair.Cert, Key: pair.Key, Expired: func(path string, notAfter time.Time) {
		reports = append(reports, path)
		if time.Since(notAfter) < time.Second {
			t.Errorf("not after %v, want a time in the past", notAfter)
		}
	}}
	config, err := files.Config(func(err error) { t.Error(err) })
	must.Succeed(t, err)
	expect := func(want int) {
		t.Helper()
		_, _ = config.GetConfigForClient(nil)
		if len(reports) != want || want > 0 && reports[want-1] != pair.Cert {
			t.Errorf("reports %q, want %d of %s", reports, want, pair.Cert)
		}
	}
	expect(0)
	expire(t, pair)
	expect(1)
	expect(1)
	_, err = files.Config(nil)
	must.Succeed(t, err)
	expect(2)
	ca.IssueTo(t, pair, "weir")
	expect(2)
}

// expire replaces a certificate by one that has expired.
func expire(t *testing.T, pair certtest.Pair) {
	t.Helper()
	loaded := pair.Load(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Minute)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, loaded.Leaf.PublicKey, loaded.PrivateKey)
	must.Succeed(t, err)
	must.Write(t, pair.Cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// Without the second CA, its clients would be rejected until the file is complete.
func TestHalfWrittenCAFileIsIgnored(t *testing.T) {
	first, second := certtest.New(t), certtest.New(t)
	pair, bundle := first.Issue(t, "weir"), filepath.Join(t.TempDir(), "cas.pem")
	both := string(must.Read(t, first.File)) + string(must.Read(t, second.File))
	must.Write(t, bundle, both)
	failures := make(chan error, 100)
	files := Server{Cert: pair.Cert, Key: pair.Key, ClientCA: bundle}
	config, err := files.Config(func(err error) { failures <- err })
	must.Succeed(t, err)
	addr := serve(t, config)
	client := &tls.Config{
		RootCAs: first.Pool(), ServerName: "weir", NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{second.Issue(t, "envoy").Load(t)},
	}
	for _, text := range []string{both, both[:len(both)-40], both + "\n"} {
		must.Write(t, bundle, text)
		if _, err := greet(addr, client); err != nil {
			t.Errorf("a client of the second CA, after %d of %d bytes: %v", len(text), len(both), err)
		}
	}
	if len(failures) != 1 {
		t.Fatalf("%d errors reported for one bad file, want 1", len(failures))
	}
	if err := <-failures; !strings.Contains(err.Error(), bundle) {
		t.Errorf("%v: want the name of the file", err)
	}
}

func TestServerVerifiesClientNames(t *testing.T) {
	const spiffe, other = "spiffe://cluster.local/ns/edge/sa/envoy", "spiffe://cluster.local/ns/edge/sa/mallory"
	ca, stranger := certtest.New(t), certtest.New(t)
	pair := ca.Issue(t, "weir")
	for names, clients := range map[string][]struct {
		host string // the names in a certificate
		by   *certtest.Authority
		want bool
	}{
		"": {{"mallory", ca, true}, {other, ca, true}, {"envoy", stranger, false}, {"", nil, false}},
		"envoy": {
			{"envoy", ca, true}, {"ENVOY", ca, true}, {"mallory envoy", ca, true}, {"mallory", ca, false}, {spiffe, ca, false},
			{"10.0.0.7", ca, false}, {"envoy", stranger, false}, {"", nil, false},
		},
		"a.edge.example, envoy": {{"*.edge.example", ca, true}, {"b.edge.example", ca, false}, {"envoy", ca, true}},
		spiffe: {
			{spiffe, ca, true}, {"envoy " + spiffe, ca, true}, {other, ca, false}, {spiffe + "/more", ca, false},
			{"cluster.local", ca, false}, {spiffe, stranger, false},
		},
		"10.0.0.7,[fd00::7]": {{"10.0.0.7", ca, true}, {"fd00::7", ca, true}, {"10.0.0.8", ca, false}, {"envoy", ca, false}},
		"envoy," + spiffe + ",10.0.0.7": {
			{"envoy", ca, true}, {spiffe, ca, true}, {"10.0.0.7", ca, true}, {"mallory 10.0.0.8 " + other, ca, false},
		},
	} {
		parsed, err := ParseNames(names)
		must.Succeed(t, err)
		files := Server{Cert: pair.Cert, Key: pair.Key, ClientCA: ca.File, Clients: parsed}
		config, err := files.Config(func(err error) { t.Error(err) })
		must.Succeed(t, err)
		addr := serve(t, config)
		for _, c := range clients {
			client := &tls.Config{RootCAs: ca.Pool(), ServerName: "weir", NextProtos: []string{"h2"}}
			if c.by != nil {
				client.Certificates = []tls.Certificate{c.by.Issue(t, strings.Fields(c.host)...).Load(t)}
			}
			if _, err := greet(addr, client); (err == nil) != c.want {
				t.Errorf("a certificate for %q, where %q may connect: %v, want it accepted: %v", c.host, names, err, c.want)
			}
		}
	}
}

func TestOptionalClientCertificateIsVerified(t *testing.T) {
	ca, stranger := certtest.New(t), certtest.New(t)
	pair := ca.Issue(t, "weir")
	config, err := Server{Cert: pair.Cert, Key: pair.Key, ClientCA: ca.File, Optional: true}.Config(nil)
	must.Succeed(t, err)
	addr := serve(t, config)
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		want         bool
	}{
		"none":         {nil, true},
		"of the CA":    {[]tls.Certificate{ca.Issue(t, "envoy").Load(t)}, true},
		"a stranger's": {[]tls.Certificate{stranger.Issue(t, "envoy").Load(t)}, false},
	} {
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: "weir", NextProtos: []string{"h2"}, Certificates: c.certificates}
		if _, err := greet(addr, client); (err == nil) != c.want {
			t.Errorf("%s: %v, want it accepted: %v", name, err, c.want)
		}
	}
}

func TestParseNamesAcceptsHosts(t *testing.T) {
	for _, text := range []string{"envoy.", "azAZ09-_.example", strings.Repeat("a", 63), strings.Repeat("a.", 126) + "a"} {
		names, err := ParseNames(text)
		must.Succeed(t, err)
		if err := names.check(&x509.Certificate{DNSNames: []string{strings.TrimSuffix(text, ".")}}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseNamesRejectsImpossibleNames(t *testing.T) {
	for _, text := range []string{
		"envoy,", ",envoy", "envoy,,mallory", " ", "*.edge.example", "two words", "envoy;mallory", "-envoy", "a..b", "alicé", "10.0.0.0/8",
		"envoy:8081", "spiffe://", "spiffe:///ns/edge", "SPIFFE://edge", "https://a b", "://envoy", "spiffe://a\x00b", "\x00", strings.Repeat("a", 64),
		strings.Repeat("a.", 127) + "aa",
	} {
		if names, err := ParseNames(text); err == nil || names != nil {
			t.Errorf("%q: %v, %v, want an error", text, names, err)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{"", "envoy", "a.example, b.example", "spiffe://cluster.local/ns/edge/sa/envoy,10.0.0.7,[fd00::7]", "*.a", "a://"} {
		f.Add(seed)
	}
	nobody, somebody := &x509.Certificate{}, &x509.Certificate{DNSNames: []string{"envoy"}}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := ParseNames(list)
		if err != nil {
			return
		}
		if (list == "") != (len(names) == 0) || len(names) > 1+strings.Count(list, ",") {
			t.Errorf("%q is %d names", list, len(names))
		}
		if len(names) > 0 && names.check(nobody) == nil {
			t.Errorf("%q lets in a certificate for nobody", list)
		}
		if names.check(somebody) == nil && len(names) > 0 && !strings.Contains(strings.ToLower(list), "envoy") {
			t.Errorf("%q lets in envoy", list)
		}
	})
}

func TestServerConfigErrorsNameTheFile(t *testing.T) {
	pair, dir := certtest.New(t).Issue(t, "weir"), t.TempDir()
	for want, files := range map[string]Server{
		"both a certificate and a key": {Cert: pair.Cert},
		"a TLS server needs both":      {Key: pair.Key},
		"may have no certificate":      {Cert: pair.Cert, Key: pair.Key, ClientCA: pair.Cert, Clients: Names{"envoy"}, Optional: true},
		"not the CA that signs":        {Cert: pair.Cert, Key: pair.Key, Clients: Names{"envoy"}},
		"none.crt":                     {Cert: dir + "/none.crt", Key: pair.Key},
		pair.Key:                       {Cert: pair.Key, Key: pair.Key},
		"none.pem":                     {Cert: pair.Cert, Key: pair.Key, ClientCA: dir + "/none.pem"},
		"no PEM certificate":           {Cert: pair.Cert, Key: pair.Key, ClientCA: pair.Key},
	} {
		if _, err := files.Config(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}
