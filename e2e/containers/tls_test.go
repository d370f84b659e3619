package containers_test

import (
	"strings"
	"testing"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/certtest"
)

// byTLS makes Envoy speak TLS to Weir under the certificate's name, optionally with a client
// certificate.
func byTLS(shows bool) change {
	clientCertificate := ""
	if shows {
		clientCertificate = "            tls_certificates:\n" +
			"              - certificate_chain: {filename: /certs/tls.crt}\n                private_key: {filename: /certs/tls.key}\n"
	}
	const before = "    - name: backend\n      type: STATIC\n"
	return change{before, "" +
		"      transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n" +
		"          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n" +
		"          sni: weir\n          common_tls_context:\n            alpn_protocols: [h2]\n" + clientCertificate +
		"            validation_context:\n              trusted_ca: {filename: /certs/ca.crt}\n" +
		"              match_typed_subject_alt_names:\n                - {san_type: DNS, matcher: {exact: weir}}\n" + before}
}

// Over TLS Weir answers Envoy. If Weir requires a client certificate, it answers only clients that
// have one.
func TestContainerServesTLSAndMutualTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	server, client := certificates(t, authority, "weir"), certificates(t, authority, "envoy")
	withTLS := map[string]string{
		"CERTS": server, "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/certs/tls.crt", "GRPC_SERVER_TLS_KEY": "/certs/tls.key",
	}
	withMTLS := map[string]string{"GRPC_CLIENT_TLS_CACERT": "/certs/ca.crt", "GRPC_CLIENT_TLS_SAN": "envoy"}
	for _, one := range []struct {
		name         string
		mutual, show bool
		connects     bool
	}{
		{"TLS", false, false, true},
		{"mTLS", true, true, true},
		{"mTLS, and Envoy shows no certificate", true, false, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			env := []map[string]string{withTLS}
			if one.mutual {
				env = append(env, withMTLS)
			}
			s.weir(rules(t, hourly(3)).dir, env...)
			c := s.envoy(bootstrap(t, byTLS(one.show)), map[string]string{"/certs": client})
			if one.connects {
				c.awaitConnected("login")
				for _, action := range actions {
					c.allowed(3, "alice", action)
					c.denied("alice", action)
				}
				return
			}
			for range 5 {
				if a := c.do("alice", "login"); a.Status != 200 || a.Limit != "" {
					t.Errorf("without a certificate: %+v, want 200 without a limit, because failure_mode_deny is false", a)
				}
			}
			if n := c.stat("cluster.backend.ratelimit.error"); n != 5 {
				t.Errorf("%d calls of the rate limit service failed, want 5", n)
			}
		})
	}
	t.Run("a plain client of a TLS port gets no answer", func(t *testing.T) {
		t.Parallel()
		s := newStack(t)
		s.weir(rules(t, hourly(3)).dir)
		c := s.envoy(bootstrap(t, byTLS(false)), map[string]string{"/certs": client})
		if a := c.do("alice", "login"); a.Limit != "" {
			t.Errorf("%+v", a)
		}
		if stats := harness.MustGet(t, c.envoy.Admin+"/stats?filter=ssl.connection_error"); !strings.Contains(stats, "cluster.weir.ssl.connection_error") {
			t.Errorf("no TLS was tried:\n%s", stats)
		}
	})
}
