package xds_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// serveTLS starts a server with the certificate name of Envoy Gateway.
func serveTLS(t *testing.T, a *certtest.Authority) *server {
	t.Helper()
	return serve(t, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(a.Server(t, "envoy-gateway"))))
}

// tlsFiles returns the files of a client of the authority.
func tlsFiles(t *testing.T, a *certtest.Authority) tlsfiles.Client {
	t.Helper()
	trusted := a.Issue(t, "envoy-ratelimit")
	return tlsfiles.Client{CA: a.File, Cert: trusted.Cert, Key: trusted.Key, ServerName: "envoy-gateway"}
}

func TestMutualTLSConnects(t *testing.T) {
	a := certtest.New(t)
	s := serveTLS(t, a)
	start(t, &xds.Source{Server: s.address, TLS: tlsFiles(t, a).Config})
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}

func TestUntrustedPeersAreRejected(t *testing.T) {
	a, stranger := certtest.New(t), certtest.New(t)
	for name, c := range map[string]struct {
		change func(*tlsfiles.Client)
		want   string // "": any. A client that the server refuses may only see a closed connection.
	}{
		"another server's name":    {func(f *tlsfiles.Client) { f.ServerName = "envoy-proxy" }, "envoy-gateway"},
		"the host is not its name": {func(f *tlsfiles.Client) { f.ServerName = "" }, "127.0.0.1"},
		"an unknown authority":     {func(f *tlsfiles.Client) { f.CA = stranger.File }, "authority"},
		"the system's authorities": {func(f *tlsfiles.Client) { f.CA = "" }, "authority"},
		"no certificate":           {func(f *tlsfiles.Client) { f.Cert, f.Key = "", "" }, ""},
		"a stranger's certificate": {func(f *tlsfiles.Client) { o := tlsFiles(t, stranger); f.Cert, f.Key = o.Cert, o.Key }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, files := serveTLS(t, a), tlsFiles(t, a)
			c.change(&files)
			w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
			if e := w.next(xds.Disconnected); e.Err == nil || !strings.Contains(e.Err.Error(), c.want) {
				t.Errorf("the error is %v, want %q in it", e.Err, c.want)
			}
			mustReceiveNothing(t, s.streams, "a stream was opened")
		})
	}
	t.Run("cleartext", func(t *testing.T) {
		w := start(t, &xds.Source{Server: serveTLS(t, a).address})
		if e := w.next(xds.Disconnected); e.Err == nil {
			t.Error("no error")
		}
	})
}

func TestReplacedCertificatesAreUsed(t *testing.T) {
	old, young := certtest.New(t), certtest.New(t)
	files := tlsFiles(t, old)
	s := serveTLS(t, young)
	w := start(t, &xds.Source{Server: s.address, TLS: files.Config})
	w.next(xds.Disconnected)
	must.Succeed(t, os.Remove(files.Key))
	for {
		if e := w.next(xds.Disconnected); strings.Contains(e.Err.Error(), files.Key) {
			break
		}
	}
	must.Succeed(t, os.Rename(young.File, files.CA))
	young.IssueTo(t, certtest.Pair{Cert: files.Cert, Key: files.Key}, "envoy-ratelimit")
	st, _ := s.accept()
	acknowledged(t, st.send("1", domain(t, "ugc", 5)), "1")
}
