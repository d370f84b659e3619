// Command serve is Envoy Gateway's control plane for rate limits, in a container. It serves rules
// on :18001 over TLS 1.3 to clients with a certificate of its CA. HTTP on :18000 sets the rules.
// One client at a time gets answers in the order of events:
//
//	GET /ready              answers once the server is ready
//	PUT /rules?version=V    the body is a list of RateLimitConfig, as JSON
//	GET /request            waits for the service's next request, and returns its version and error
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weir-rls/weir/e2e/xds/envoygateway"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

func main() {
	if err := run("/certs"); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

// run serves with tls.crt, tls.key and ca.crt of a folder until it fails.
func run(certs string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "tls.crt"), filepath.Join(certs, "tls.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(filepath.Join(certs, "ca.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return errors.New("ca.crt has no certificate")
	}
	listener, err := net.Listen("tcp", ":18001")
	if err != nil {
		return err
	}
	s := envoygateway.NewServer()
	failed := make(chan error, 2)
	go func() {
		failed <- s.Serve(listener, grpc.Creds(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		})))
	}()
	control := &http.Server{Addr: ":18000", Handler: handler(s), ReadHeaderTimeout: 10 * time.Second}
	go func() { failed <- control.ListenAndServe() }()
	return <-failed
}

func handler(s *envoygateway.Server) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("PUT /rules", func(w http.ResponseWriter, r *http.Request) {
		if err := set(s, r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("GET /request", func(w http.ResponseWriter, r *http.Request) {
		select {
		case q := <-s.Requests:
			_ = json.NewEncoder(w).Encode(map[string]string{
				"node": q.GetNode().GetId(), "version": q.GetVersionInfo(), "error": q.GetErrorDetail().GetMessage(),
			})
		case <-r.Context().Done():
		}
	})
	return mux
}

func set(s *envoygateway.Server, r *http.Request) error {
	var raw []json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&raw); err != nil {
		return err
	}
	var configs []*conf.RateLimitConfig
	for _, one := range raw {
		c := new(conf.RateLimitConfig)
		if err := protojson.Unmarshal(one, c); err != nil {
			return err
		}
		configs = append(configs, c)
	}
	return s.Set(r.Context(), r.URL.Query().Get("version"), configs...)
}
