package redisstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

func openTLS(t *testing.T, server *redistest.Server, files TLSFiles) *Store {
	t.Helper()
	config, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	return openAt(t, Options{Addr: server.Addr, TLS: config})
}

func openAt(t *testing.T, o Options) *Store {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience
	}
	s := New(o)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestTLSWithAClientCertificatePassesTheSuite(t *testing.T) {
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	own := authority.Issue(t, "weir")
	limiterstest.Run(t, func(t *testing.T) limiters.Store {
		if err := server.Client(t).FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		return openTLS(t, server, TLSFiles{Cert: own.Cert, Key: own.Key, CA: authority.File})
	})
}

func TestWhomTLSBelieves(t *testing.T) {
	authority, other := certtest.New(t), certtest.New(t)
	here := redistest.StartTLS(t, authority, "127.0.0.1")
	elsewhere := redistest.StartTLS(t, authority, "elsewhere.test")
	own, foreign := authority.Issue(t, "weir"), other.Issue(t, "weir")
	for _, c := range []struct {
		name   string
		server *redistest.Server
		files  TLSFiles
		err    string // " " is any: of TLS 1.3 the client hears only that the connection has ended
	}{
		{"all is right", here, TLSFiles{own.Cert, own.Key, authority.File, false}, ""},
		{"no client certificate", here, TLSFiles{"", "", authority.File, false}, " "},
		{"a stranger's certificate", here, TLSFiles{foreign.Cert, foreign.Key, authority.File, false}, " "},
		{"a wrong authority", here, TLSFiles{own.Cert, own.Key, other.File, false}, "unknown authority"},
		{"the system's authorities", here, TLSFiles{own.Cert, own.Key, "", false}, "unknown authority"},
		{"another name", elsewhere, TLSFiles{own.Cert, own.Key, authority.File, false}, "127.0.0.1"},
		{"another name, which does not matter", elsewhere, TLSFiles{own.Cert, own.Key, authority.File, true}, ""},
		{"a wrong authority, whatever the name", here, TLSFiles{own.Cert, own.Key, other.File, true}, "unknown authority"},
	} {
		out, err := take(t, openTLS(t, c.server, c.files), limiters.Hit{Key: c.name, Limit: hourly, N: 1})
		if c.err == "" && (err != nil || out[0].Used != 1) ||
			c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %+v, %v, want %q", c.name, out[0], err, c.err)
		}
	}
	plain := openAt(t, Options{Addr: here.Addr})
	if _, err := take(t, plain, limiters.Hit{Key: "k", Limit: hourly, N: 1}); err == nil {
		t.Error("no TLS, and no error")
	}
}

// A certificate that was renewed is shown from the next connection on.
func TestACertificateIsReadAgainForEachConnection(t *testing.T) {
	authority := certtest.New(t)
	server := redistest.StartTLS(t, authority, "127.0.0.1")
	own := certtest.New(t).Issue(t, "weir")
	s := openTLS(t, server, TLSFiles{Cert: own.Cert, Key: own.Key, CA: authority.File})
	if _, err := take(t, s, limiters.Hit{Key: "k", Limit: hourly, N: 1}); err == nil {
		t.Fatal("a stranger got in")
	}
	authority.IssueTo(t, own, "weir")
	if out, err := take(t, s, limiters.Hit{Key: "k", Limit: hourly, N: 1}); err != nil || out[0].Used != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestFaultsInTLSFiles(t *testing.T) {
	authority := certtest.New(t)
	own, other := authority.Issue(t, "weir"), authority.Issue(t, "weir")
	junk := filepath.Join(t.TempDir(), "junk.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		files TLSFiles
		err   string
	}{
		{TLSFiles{Cert: own.Cert}, own.Cert + " has no key"},
		{TLSFiles{Key: own.Key}, own.Key + " has no client certificate"},
		{TLSFiles{Cert: own.Cert, Key: other.Key}, "private key does not match"},
		{TLSFiles{Cert: junk, Key: own.Key}, junk},
		{TLSFiles{CA: junk}, "no certificate in " + junk},
		{TLSFiles{CA: junk + "x"}, "no such file"},
	} {
		if _, err := c.files.Config(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v, want %q", c.files, err, c.err)
		}
	}
}
