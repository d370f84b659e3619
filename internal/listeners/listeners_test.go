package listeners

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/certtest"
)

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
	return c.ConnectionState().PeerCertificates[0].DNSNames[0], nil
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	ca := certtest.New(t)
	pair := ca.Issue(t, "first")
	files := TLS{Cert: pair.Cert, Key: pair.Key}
	failures := make(chan error, 100)
	config, err := files.Config(func(err error) { failures <- err })
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, config)
	expect := func(name string) {
		t.Helper()
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: name, NextProtos: []string{"h2"}}
		if got, err := greet(addr, client); err != nil || got != name {
			t.Errorf("%q, %v, want %q", got, err, name)
		}
	}
	expect("first")

	write(t, pair.Cert, "half a certifica")
	expect("first")
	expect("first")
	if len(failures) != 1 {
		t.Errorf("told %d times of one bad file", len(failures))
	}
	if err := <-failures; !strings.Contains(err.Error(), pair.Cert) {
		t.Errorf("%v: does not name the file", err)
	}
	ca.IssueTo(t, pair, "second")
	expect("second")
	if err := os.Remove(pair.Cert); err != nil {
		t.Fatal(err)
	}
	expect("second")
}

func TestClientsMustShowWhoTheyAre(t *testing.T) {
	ca, other := certtest.New(t), certtest.New(t)
	pair := ca.Issue(t, "weir")
	files := TLS{Cert: pair.Cert, Key: pair.Key, ClientCA: ca.File, ClientSAN: "envoy"}
	config, err := files.Config(func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	addr := serve(t, config)
	for _, c := range []struct {
		who  string
		by   *certtest.Authority
		want bool
	}{
		{"envoy", ca, true}, {"mallory", ca, false}, {"envoy", other, false}, {"", nil, false},
	} {
		client := &tls.Config{RootCAs: ca.Pool(), ServerName: "weir", NextProtos: []string{"h2"}}
		if c.by != nil {
			client.Certificates = []tls.Certificate{c.by.Issue(t, c.who).Load(t)}
		}
		if _, err := greet(addr, client); (err == nil) != c.want {
			t.Errorf("%q: %v, want let in: %v", c.who, err, c.want)
		}
	}
}

func TestWhatCannotBeServedIsAnErrorThatNamesIt(t *testing.T) {
	pair, dir := certtest.New(t).Issue(t, "weir"), t.TempDir()
	for want, files := range map[string]TLS{
		"both a certificate and a key": {Cert: pair.Cert},
		"wants a CA":                   {Cert: pair.Cert, Key: pair.Key, ClientSAN: "envoy"},
		"none.crt":                     {Cert: dir + "/none.crt", Key: pair.Key},
		pair.Key:                       {Cert: pair.Key, Key: pair.Key},
		"none.pem":                     {Cert: pair.Cert, Key: pair.Key, ClientCA: dir + "/none.pem"},
		"holds no PEM certificate":     {Cert: pair.Cert, Key: pair.Key, ClientCA: pair.Key},
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
	write(t, path, "data")
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file is gone: %q, %v", data, err)
	}
}
