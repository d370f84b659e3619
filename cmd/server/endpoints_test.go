package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

func TestMemoryServerDecidesAndReports(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := startServer(t, "CONFIG_PATH="+path)

	s.awaitHealthy()
	if !s.healthy("") || !s.healthy("ratelimit") {
		t.Error("gRPC health: not serving")
	}
	s.log.await(t, 0, `"ready"`)
	if n := strings.Count(s.output.String(), `"@message":"ready"`); n != 1 {
		t.Errorf("the log says %d times that the server is ready, want once", n)
	}
	for want := uint32(2); want > 0; want-- {
		if got := s.remaining("alice"); got != want {
			t.Errorf("alice has %d left, want %d", got, want)
		}
	}
	if s.remaining("alice") != 0 || s.remaining("bob") != 2 {
		t.Error("want alice denied, and bob with 2 left")
	}
	if _, err := s.client.ShouldRateLimit(context.Background(), &ratelimitv3.RateLimitRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty request: %v", err)
	}
	_, metrics := s.get("/metrics")
	for _, want := range []string{
		`weir_hits_total{domain="ugc",rule="user_id",verdict="allowed"} 3`,
		`weir_hits_total{domain="ugc",rule="user_id",verdict="denied"} 1`,
		`weir_requests_total{code="OK",overall="over_limit"} 1`,
		`weir_requests_total{code="InvalidArgument",overall=""} 1`,
		`ratelimit_service_rate_limit_total_hits{domain="ugc",key1="user_id"} 4`,
		`ratelimit_service_rate_limit_over_limit{domain="ugc",key1="user_id"} 1`,
		`weir_memory_keys 2`, `weir_rules 1`, `weir_panics_total 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(metrics, "alice") {
		t.Error("/metrics holds a value of a request")
	}
}

func TestEndpointsOfRatelimit(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:0", "PROMETHEUS_PATH=/{prom",
		"EXPIRATION_JITTER_MAX_SECONDS=300", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "LIMIT_RESET_HEADER=x-reset")
	s.log.await(t, 0, `"setting":"EXPIRATION_JITTER_MAX_SECONDS"`)
	const ask = `{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"carol"}]}]}`
	for i, want := range []int{200, 200, 429} {
		if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", ask); code != want || !strings.Contains(body, `"overallCode"`) {
			t.Errorf("/json, request %d: %d %s, want %d", i+1, code, body, want)
		}
	}
	r, err := s.call("dave")
	if err != nil || len(r.GetResponseHeadersToAdd()) != 3 || r.GetResponseHeadersToAdd()[2].GetKey() != "x-reset" {
		t.Errorf("response headers: %v, %v", r.GetResponseHeadersToAdd(), err)
	}
	debug := "http://" + s.address("debug")
	for path, want := range map[string]string{
		"/":                    "/rlconfig",
		"/rlconfig":            "ugc.user_id: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false",
		"/stats":               "memstats",
		"/debug/pprof/":        "goroutine",
		"/debug/pprof/cmdline": "server.test",
	} {
		if code, body := fetch(t, "GET", debug+path, ""); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.200s, want %q", path, code, body, want)
		}
	}
	if code, body := fetch(t, "GET", "http://"+s.address("prometheus")+"/{prom", ""); code != 200 || !strings.Contains(body, "weir_rules 1") {
		t.Errorf("PROMETHEUS_ADDR: %d %.100s", code, body)
	}
	if host, _, _ := net.SplitHostPort(s.address("debug")); host != "127.0.0.1" {
		t.Errorf("the debug port is open to all: %s, want 127.0.0.1", host)
	}
}

func checkHealth(t *testing.T, target string, creds credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds))
	must.Succeed(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	_, err = healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "ratelimit"})
	return err
}

func TestServeTLSRequiresClientCertificate(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	pair, client := ca.Issue(t, "weir"), ca.Issue(t, "envoy")
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+pair.Cert,
		"GRPC_SERVER_TLS_KEY="+pair.Key, "GRPC_CLIENT_TLS_CACERT="+ca.File, "GRPC_CLIENT_TLS_SAN=spiffe://cluster.local/ns/edge/sa/envoy, envoy")
	addr, certs := s.address("grpc"), []tls.Certificate{client.Load(t)}
	with := credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), ServerName: "weir", Certificates: certs})
	if err := checkHealth(t, addr, with); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	other := credentials.NewTLS(&tls.Config{
		RootCAs: ca.Pool(), ServerName: "weir", Certificates: []tls.Certificate{ca.Issue(t, "mallory").Load(t)},
	})
	if err := checkHealth(t, addr, other); err == nil {
		t.Error("a client with another name was let in")
	}
	if err := checkHealth(t, addr, credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), ServerName: "weir"})); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if err := checkHealth(t, addr, insecure.NewCredentials()); err == nil {
		t.Error("a client without TLS was let in")
	}
}

func TestServeOnUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	startServer(t, "CONFIG_PATH="+rulesFile(t), "GRPC_UDS="+path)
	if err := checkHealth(t, "unix://"+path, insecure.NewCredentials()); err != nil {
		t.Error(err)
	}
}

func TestSecondLimitsUseThePerSecondRedis(t *testing.T) {
	t.Parallel()
	main, second := redistest.Start(t), redistest.Start(t)
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: year, requests_per_unit: 2}}\n"+
		"  - {key: user_id, value: hasty, rate_limit: {unit: second, requests_per_unit: 1000}}\n")
	s := startServer(t, "CONFIG_PATH="+path, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+main.Addr, "REDIS_PERSECOND=true",
		"REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+second.Addr)
	s.remaining("alice")
	s.remaining("hasty")
	for server, want := range map[*redistest.Server]string{main: "5:alice", second: "5:hasty"} {
		keys := server.Client(t).Keys(context.Background(), "*").Val()
		if len(keys) != 1 || !strings.Contains(keys[0], want) {
			t.Errorf("%q, want one key of %s", keys, want)
		}
	}
}

// With FORCE_START_WITHOUT_INITIAL_CONFIG and without files, requests get UNAVAILABLE until there
// are rules.
func TestServerWithoutRulesIsNotReady(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	s := startServer(t, "CONFIG_PATH="+path, "FORCE_START_WITHOUT_INITIAL_CONFIG=true", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true")
	if _, err := s.call("alice"); err == nil || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("without rules: %v, want the error that no rules are loaded", err)
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck without rules: %d, want 500", code)
	}
	if code, _ := s.get("/livez"); code != 200 {
		t.Errorf("/livez without rules: %d: who is not ready is alive", code)
	}
	write(t, path, rules)
	s.log.await(t, 0, "rules loaded")
	s.awaitHealthy()
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

func TestOverlaySetsTheAlgorithm(t *testing.T) {
	t.Parallel()
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {algorithm: funnel, capacity: 1}}\n")
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "CONFIG_OVERLAY="+overlay)
	_, seen := s.log.await(t, 0, "rules loaded")
	if got := s.remaining("alice"); got != 1 {
		t.Errorf("%d remaining of a funnel that holds 1, want 1", got)
	}
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {algorithm: funnel, capacity: 9}}\n")
	_, seen = s.log.await(t, seen, "rules loaded")
	if got := s.remaining("bob"); got != 9 {
		t.Errorf("%d remaining of a funnel that holds 9, want 9", got)
	}
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {unit: day}}\n")
	s.log.await(t, seen, "rules not loaded")
	if got := s.remaining("carol"); got != 9 {
		t.Errorf("%d remaining of a funnel that holds 9, after an overlay with a fault, want 9", got)
	}
}

// An optional ConfigMap that does not exist is an empty folder.
func TestOverlayMayBeAddedAndRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "CONFIG_OVERLAY="+dir)
	s.log.await(t, 0, "no overlay yet")
	_, seen := s.log.await(t, 0, "rules loaded")
	if got := s.remaining("alice"); got != 2 {
		t.Errorf("%d remaining of 3, want 2", got)
	}
	overlay := filepath.Join(dir, "overlay.yaml")
	write(t, overlay, "domain: ugc\ndescriptors:\n  - {key: user_id, rate_limit: {algorithm: funnel, capacity: 9}}\n")
	_, seen = s.log.await(t, seen, "rules loaded")
	if got := s.remaining("bob"); got != 9 {
		t.Errorf("%d remaining of a funnel that holds 9, want 9", got)
	}
	must.Succeed(t, os.Remove(overlay))
	s.log.await(t, seen, "rules loaded")
	if got := s.remaining("carol"); got != 2 {
		t.Errorf("%d remaining of 3 without the overlay, want 2", got)
	}
}

// Clients reject an expired certificate, and Redis and the control plane an expired client's.
func TestExpiredCertificatesAreLogged(t *testing.T) {
	t.Parallel()
	expired := func() certtest.Pair {
		pair := certtest.New(t).Issue(t, "weir")
		key := pair.Load(t).PrivateKey.(*ecdsa.PrivateKey)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		must.Succeed(t, err)
		write(t, pair.Cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
		return pair
	}
	server, redis, controlPlane := expired(), expired(), expired()
	s := startServer(t, "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT="+server.Cert, "GRPC_SERVER_TLS_KEY="+server.Key,
		"REDIS_URL=rediss://127.0.0.1:1", "REDIS_TLS_CLIENT_CERT="+redis.Cert, "REDIS_TLS_CLIENT_KEY="+redis.Key,
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=127.0.0.1:1", "CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT="+controlPlane.Cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY="+controlPlane.Key)
	for _, pair := range []certtest.Pair{server, redis, controlPlane} {
		line, _ := s.log.await(t, 0, fmt.Sprintf(`"certificate":%q`, pair.Cert))
		for _, want := range []string{`"warn"`, "certificate expired", "2001-02-03T04:05:06"} {
			if !strings.Contains(line, want) {
				t.Errorf("the line lacks %q: %s", want, line)
			}
		}
	}
}

func TestSettingsWithoutEffectAreLogged(t *testing.T) {
	t.Parallel()
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "GRPC_SERVER_TLS_CERT=/nowhere", "STORE_TIMEOUTS=1s", "TIMEOUT=1s")
	s.log.await(t, 0, `"setting":"GRPC_SERVER_TLS_CERT"`)
	s.log.await(t, 0, `"setting":"STORE_TIMEOUTS","reason":"unknown setting: did you mean STORE_TIMEOUT?"`)
	if strings.Contains(s.output.String(), `"TIMEOUT"`) {
		t.Error("a variable of another program is reported")
	}
}

func TestJSONCanBeDisabled(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"JSON_ENABLED=false", "--no-json"} {
		s := startServer(t, "CONFIG_PATH="+rulesFile(t), setting)
		s.awaitHealthy()
		if code, body := fetch(t, "POST", "http://"+s.httpAddr+"/json", `{"domain":"ugc"}`); code != 404 {
			t.Errorf("%s: %d %s, want 404", setting, code, body)
		}
	}
}

// A collector that refuses every batch of spans fails many exports a second.
func TestFailedExportsAreLoggedOncePerSecond(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refusing.Close)
	s := startServer(t, "CONFIG_PATH="+rulesFile(t), "TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT="+refusing.URL, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=1")
	start := time.Now()
	for range 100 {
		s.remaining("alice")
	}
	s.log.await(t, 0, "tracing failed")
	s.stop()
	if n, most := strings.Count(s.output.String(), `"tracing failed"`), 2+int(time.Since(start).Seconds()); n > most {
		t.Errorf("%d lines, want at most %d", n, most)
	}
}
