package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
)

// connect makes one connection to a server that requires client certificates of authority, and
// reads one byte from it.
func connect(t *testing.T, authority *certtest.Authority, serverName string, config *tls.Config) error {
	t.Helper()
	server := authority.Server(t, serverName)
	server.NextProtos = nil
	addr := serve(t, server)
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = "127.0.0.1"
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 2 * time.Minute}, "tcp", addr, config)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	return err
}

func TestChainIsVerifiedByItsIntermediate(t *testing.T) {
	var chain []*x509.Certificate // the root, the intermediate and the server's
	var signer *ecdsa.PrivateKey
	for i := range 3 {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must.Succeed(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: strconv.Itoa(i)}, NotAfter: time.Now().Add(time.Hour),
			IsCA: i < 2, BasicConstraintsValid: true,
		}
		parent := template
		if i == 0 {
			signer = key
		} else {
			parent = chain[i-1]
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		must.Succeed(t, err)
		made, err := x509.ParseCertificate(der)
		must.Succeed(t, err)
		chain, signer = append(chain, made), key
	}
	roots := x509.NewCertPool()
	roots.AddCert(chain[0])
	if err := verifyChain(tls.ConnectionState{PeerCertificates: []*x509.Certificate{chain[2], chain[1]}}, roots); err != nil {
		t.Error(err)
	}
	if verifyChain(tls.ConnectionState{PeerCertificates: chain[2:]}, roots) == nil {
		t.Error("a chain without its intermediate is accepted")
	}
}

func TestClientVerifiesTheServer(t *testing.T) {
	authority, stranger := certtest.New(t), certtest.New(t)
	trusted, foreign := authority.Issue(t, "weir"), stranger.Issue(t, "weir")
	right := Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File}
	for _, c := range []struct {
		name, server string
		change       func(*Client)
		err          string // " ": any. With TLS 1.3 a client that is refused sees only the end of the connection.
	}{
		{"everything matches", "127.0.0.1", func(*Client) {}, ""},
		{"a server name", "redis.example", func(c *Client) { c.ServerName = "redis.example" }, ""},
		{"another server name", "127.0.0.1", func(c *Client) { c.ServerName = "redis.example" }, "redis.example"},
		{"another host", "redis.example", func(*Client) {}, "127.0.0.1"},
		{"another host, not verified", "redis.example", func(c *Client) { c.SkipHostname = true }, ""},
		{"an unknown authority", "127.0.0.1", func(c *Client) { c.CA = stranger.File }, "unknown authority"},
		{"an unknown authority and no verified host", "127.0.0.1", func(c *Client) { c.CA, c.SkipHostname = stranger.File, true }, "unknown authority"},
		{"the authorities of the system", "127.0.0.1", func(c *Client) { c.CA = "" }, "unknown authority"},
		{"no client certificate", "127.0.0.1", func(c *Client) { c.Cert, c.Key = "", "" }, " "},
		{"a stranger's certificate", "127.0.0.1", func(c *Client) { c.Cert, c.Key = foreign.Cert, foreign.Key }, " "},
	} {
		files := right
		c.change(&files)
		config, err := files.Config()
		must.Succeed(t, err)
		err = connect(t, authority, c.server, config)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
}

func TestClientReloadsItsCertificate(t *testing.T) {
	authority := certtest.New(t)
	trusted := certtest.New(t).Issue(t, "weir")
	config, err := Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File}.Config()
	must.Succeed(t, err)
	if connect(t, authority, "127.0.0.1", config) == nil {
		t.Fatal("the server accepted a certificate of another authority")
	}
	authority.IssueTo(t, trusted, "weir")
	if err := connect(t, authority, "127.0.0.1", config); err != nil {
		t.Errorf("with the renewed certificate: %v", err)
	}
}

func TestExpiredClientCertificateIsReportedForEachConnection(t *testing.T) {
	authority := certtest.New(t)
	pair, reports := authority.Issue(t, "weir"), 0
	files := Client{Cert: pair.Cert, Key: pair.Key, CA: authority.File, Expired: func(path string, _ time.Time) {
		if reports++; path != pair.Cert {
			t.Errorf("reported %s, want %s", path, pair.Cert)
		}
	}}
	config, err := files.Config()
	must.Succeed(t, err)
	expire(t, pair)
	for want := range 3 {
		if reports != want {
			t.Errorf("%d reports, want %d", reports, want)
		}
		if connect(t, authority, "127.0.0.1", config) == nil {
			t.Error("the server accepted an expired certificate")
		}
	}
}

// A rotation first adds the new CA to the file, and then replaces the server's certificate. Each
// connection verifies the server's name and chain as crypto/tls does.
func TestReloadingClientUsesAChangedCA(t *testing.T) {
	before, after := certtest.New(t), certtest.New(t)
	old, renewed := must.Read(t, before.File), must.Read(t, after.File)
	client := after.Issue(t, "weir")
	for _, skip := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "ca.pem")
		must.Write(t, path, string(old))
		failures := make(chan error, 10)
		files := Client{Cert: client.Cert, Key: client.Key, CA: path, SkipHostname: skip}
		current, err := files.Reloading(func(err error) { failures <- err })
		must.Succeed(t, err)
		expect := func(when, server, want string) {
			t.Helper()
			err := connect(t, after, server, current())
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s, skip=%v: %v, want %q", when, skip, err, want)
			}
		}
		expect("an old CA", "127.0.0.1", "unknown authority")
		must.Write(t, path, string(old)+string(renewed))
		expect("both CAs", "127.0.0.1", "")
		otherHost := "127.0.0.1"
		if skip {
			otherHost = ""
		}
		expect("another host", "redis.example", otherHost)
		must.Write(t, path, "half a certifica")
		expect("half a file", "127.0.0.1", "")
		expect("half a file", "127.0.0.1", "")
		must.Succeed(t, os.Remove(path))
		expect("no file", "127.0.0.1", "")
		must.Write(t, path, string(old))
		expect("the old CA again", "127.0.0.1", "unknown authority")
		if len(failures) != 2 {
			t.Fatalf("%d failures reported, want half a file and no file", len(failures))
		}
		for range 2 {
			if err := <-failures; !strings.Contains(err.Error(), path) {
				t.Errorf("%v: want the name of the file", err)
			}
		}
	}
}

func TestReloadingClientTrustsTheSystemWithoutACA(t *testing.T) {
	current, err := Client{}.Reloading(nil)
	must.Succeed(t, err)
	if err := connect(t, certtest.New(t), "127.0.0.1", current()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("%v, want an unknown authority", err)
	}
	missing := filepath.Join(t.TempDir(), "none.pem")
	if _, err := (Client{CA: missing}).Reloading(nil); err == nil || !strings.Contains(err.Error(), missing+": no such file") {
		t.Errorf("%v, want the missing file", err)
	}
}

// A pipe gives the CA only once, so it is read once.
func TestClientReadsItsCAFromAPipe(t *testing.T) {
	ca, path := must.Read(t, certtest.New(t).File), filepath.Join(t.TempDir(), "pipe")
	must.Succeed(t, syscall.Mkfifo(path, 0o600))
	written := make(chan error)
	go func() { written <- os.WriteFile(path, ca, 0) }()
	current, err := Client{CA: path}.Reloading(nil)
	if err != nil || current().RootCAs == nil || current().RootCAs == nil {
		t.Fatalf("%v, want the CA", err)
	}
	must.Succeed(t, <-written)
}

func TestClientConfigErrorsNameTheFile(t *testing.T) {
	authority := certtest.New(t)
	trusted, other := authority.Issue(t, "weir"), authority.Issue(t, "weir")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	must.Succeed(t, os.WriteFile(junk, []byte("junk"), 0o600))
	for _, c := range []struct {
		files Client
		err   string
	}{
		{Client{Cert: trusted.Cert}, trusted.Cert + " has no key"},
		{Client{Key: trusted.Key}, trusted.Key + " has no certificate"},
		{Client{Cert: trusted.Cert, Key: other.Key}, "private key does not match"},
		{Client{Cert: junk, Key: trusted.Key}, junk + " with the key " + trusted.Key + ": no PEM certificate in the first file"},
		{Client{Cert: trusted.Cert, Key: junk}, trusted.Cert + " with the key " + junk + ": no PEM key in the second file"},
		{Client{Cert: trusted.Cert, Key: junk + "x"}, junk + "x: no such file"},
		{Client{CA: junk}, junk + ": no PEM certificate"},
		{Client{CA: junk + "x"}, junk + "x: no such file"},
	} {
		if _, err := c.files.Config(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, want %q", c.files, err, c.err)
		}
	}
}
