package xds_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// serveTLS is a server as Envoy Gateway's: its name is envoy-gateway.
func serveTLS(t *testing.T, a *certtest.Authority) *server {
	t.Helper()
	return serve(t, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(a.Server(t, "envoy-gateway"))))
}

// tlsFiles are what a client of the authority needs.
func tlsFiles(t *testing.T, a *certtest.Authority) xds.TLSFiles {
	t.Helper()
	own := a.Issue(t, "envoy-ratelimit")
	return xds.TLSFiles{CA: a.File, Cert: own.Cert, Key: own.Key, ServerName: "envoy-gateway"}
}

func TestMutualTLS(t *testing.T) {
	a := certtest.New(t)
	s := serveTLS(t, a)
	start(t, &xds.Source{Server: s.address, TLS: tlsFiles(t, a).Config})
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestWhoIsNotTrustedIsNotTalkedTo(t *testing.T) {
	a, stranger := certtest.New(t), certtest.New(t)
	for name, c := range map[string]struct {
		change func(*xds.TLSFiles)
		want   string // a client that the server turns away may only see that the connection is gone
	}{
		"another server's name":    {func(f *xds.TLSFiles) { f.ServerName = "envoy-proxy" }, "envoy-gateway"},
		"the host is not its name": {func(f *xds.TLSFiles) { f.ServerName = "" }, "127.0.0.1"},
		"an unknown authority":     {func(f *xds.TLSFiles) { f.CA = stranger.File }, "authority"},
		"the system's authorities": {func(f *xds.TLSFiles) { f.CA = "" }, "authority"},
		"no certificate":           {func(f *xds.TLSFiles) { f.Cert, f.Key = "", "" }, ""},
		"a stranger's certificate": {func(f *xds.TLSFiles) { o := tlsFiles(t, stranger); f.Cert, f.Key = o.Cert, o.Key }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, files := serveTLS(t, a), tlsFiles(t, a)
			c.change(&files)
			w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
			if e := w.next(xds.Disconnected); e.Err == nil || !strings.Contains(e.Err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", e.Err, c.want)
			}
			none(t, s.streams, "a stream was opened")
		})
	}
	t.Run("cleartext", func(t *testing.T) {
		w := start(t, &xds.Source{Server: serveTLS(t, a).address})
		if e := w.next(xds.Disconnected); e.Err == nil {
			t.Error("no error")
		}
	})
}

func TestReplacedCertificatesCountFromTheNextConnectionOn(t *testing.T) {
	old, young := certtest.New(t), certtest.New(t)
	files := tlsFiles(t, old)
	s := serveTLS(t, young)
	w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
	w.next(xds.Disconnected)
	must(t, os.Remove(files.Key))
	for {
		if e := w.next(xds.Disconnected); strings.Contains(e.Err.Error(), files.Key) {
			break
		}
	}
	must(t, os.Rename(young.File, files.CA))
	young.IssueTo(t, certtest.Pair{Cert: files.Cert, Key: files.Key}, "envoy-ratelimit")
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestFilesThatCannotBeReadAreNamed(t *testing.T) {
	good := tlsFiles(t, certtest.New(t))
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
