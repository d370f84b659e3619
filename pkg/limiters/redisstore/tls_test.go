package redisstore

import (
	"context"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

func openTLS(t *testing.T, server *redistest.Server, files tlsfiles.Client) *testStore {
	t.Helper()
	config, err := files.Config()
	must.Succeed(t, err)
	return openAt(t, connect.Options{Addr: server.Addr, TLS: config})
}

// openAt opens a store, by default with a timeout that no call exceeds on a busy machine.
func openAt(t *testing.T, c connect.Options, o ...Options) *testStore {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = longTimeout
	}
	s := newTestStore(c, append(o, Options{})[0])
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestTLSPassesTheSuite(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	trusted := authority.Issue(t, "weir")
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(context.Background()).Err())
		return openTLS(t, server, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File})
	})
}

func TestTLSRejectsUntrustedServersAndClients(t *testing.T) {
	authority, other := certtest.New(t), certtest.New(t)
	here := redistest.StartTLS(t, authority, "127.0.0.1")
	elsewhere := redistest.StartTLS(t, authority, "elsewhere.test")
	trusted, foreign := authority.Issue(t, "weir"), other.Issue(t, "weir")
	for _, c := range []struct {
		name   string
		server *redistest.Server
		files  tlsfiles.Client
		err    string // " " is any: of TLS 1.3 the client hears only that the connection has ended
	}{
		{"all is right", here, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File}, ""},
		{"no client certificate", here, tlsfiles.Client{CA: authority.File}, " "},
		{"a stranger's certificate", here, tlsfiles.Client{Cert: foreign.Cert, Key: foreign.Key, CA: authority.File}, " "},
		{"a wrong authority", here, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: other.File}, "unknown authority"},
		{"the system's authorities", here, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: ""}, "unknown authority"},
		{"another name", elsewhere, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File}, "127.0.0.1"},
		{"another name, which does not matter", elsewhere, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File, SkipHostname: true}, ""},
		{"a wrong authority, whatever the name", here, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: other.File, SkipHostname: true}, "unknown authority"},
	} {
		out, err := take(openTLS(t, c.server, c.files), limiters.Op{Key: c.name, Limit: hourly, Hits: 1})
		if c.err == "" && (err != nil || out[0].Used != 1) ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v, want %q", c.name, out[0], err, c.err)
		}
	}
	plain := openAt(t, connect.Options{Addr: here.Addr})
	if _, err := take(plain, limiters.Op{Key: "k", Limit: hourly, Hits: 1}); err == nil {
		t.Error("no TLS, and no error")
	}
}

// A renewed client certificate is used from the next connection on.
func TestClientCertificateIsReadForEachConnection(t *testing.T) {
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	trusted := certtest.New(t).Issue(t, "weir")
	s := openTLS(t, server, tlsfiles.Client{Cert: trusted.Cert, Key: trusted.Key, CA: authority.File})
	if _, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1}); err == nil {
		t.Fatal("a stranger got in")
	}
	authority.IssueTo(t, trusted, "weir")
	if out, err := take(s, limiters.Op{Key: "k", Limit: hourly, Hits: 1}); err != nil || out[0].Used != 1 {
		t.Errorf("a Take with the renewed certificate: got %+v, error %v, want used=1", out, err)
	}
}
