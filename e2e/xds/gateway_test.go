package xds_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/e2e/xds/envoygateway"
	"github.com/weir-rls/weir/internal/certtest"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

var build, remove = harness.BuildOnce()

func TestMain(m *testing.M) { os.Exit(harness.Run(m, "xds", remove)) }

// asRatelimit returns the path of Weir under the name ratelimit, as in its image.
func asRatelimit(t *testing.T) string {
	t.Helper()
	binary := build(t)
	path := filepath.Join(t.TempDir(), "ratelimit")
	must.Succeed(t, os.Symlink(binary, path))
	return path
}

// Weir starts as Envoy Gateway starts envoyproxy/ratelimit: /bin/ratelimit without arguments, with
// its variables and certificates and without its mapping file, before the gateway answers. Only
// ports and paths belong to the test.
func TestEnvoyGatewayStartsWeirLikeRatelimit(t *testing.T) {
	a := certtest.New(t)
	trusted := a.Issue(t, "envoy-ratelimit")
	xdsAddr, redis := redistest.FreeAddr(t), redistest.Start(t)
	port := func() string {
		_, port, err := net.SplitHostPort(redistest.FreeAddr(t))
		must.Succeed(t, err)
		return port
	}
	grpcPort, httpPort, promPort := port(), port(), port()

	cmd := exec.Command(asRatelimit(t))
	for name, value := range envoygateway.Environment(envoygateway.Endpoints{
		Gateway: xdsAddr, Redis: redis.Addr, Prometheus: "127.0.0.1:" + promPort, Cert: trusted.Cert, Key: trusted.Key, CACert: a.File,
	}) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, // the test's own
		"HOST=127.0.0.1", "PORT="+httpPort, "GRPC_HOST=127.0.0.1", "GRPC_PORT="+grpcPort, "DEBUG_PORT=0",
		"CONFIG_GRPC_XDS_SERVER_TLS_SAN=envoy-gateway", "STORE_TIMEOUT=1m", "DRAIN_DELAY=0s",
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=50ms", "XDS_CLIENT_BACKOFF_MAX_INTERVAL=100ms")
	// It is ready before the gateway answers.
	weir := harness.MustStart(t, cmd, func(ctx context.Context) error {
		body, err := harness.Get(ctx, "http://127.0.0.1:"+httpPort+"/healthcheck")
		if err == nil && body != "OK" {
			t.Errorf("/healthcheck: %q", body)
		}
		return err
	})

	conn, err := grpc.NewClient("127.0.0.1:"+grpcPort, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: a.Pool(), ServerName: "envoy-ratelimit"})))
	must.Succeed(t, err)
	defer conn.Close()
	service := ratelimitv3.NewRateLimitServiceClient(conn)
	ask := func() (string, error) {
		r, err := service.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
			Domain: "default/eg/http", Descriptors: []*commonv3.RateLimitDescriptor{
				{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
			},
		})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(r.GetOverallCode(), " of ", r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit()), nil
	}
	if got, err := ask(); err == nil || !strings.Contains(err.Error(), "no rate limit configuration loaded") {
		t.Errorf("before the rules came: %q, %v", got, err)
	}

	gateway := newServer(t)
	gateway.set("1", config("default/eg/http", 2))
	gateway.serve(xdsAddr, secure(t, a))
	gateway.request() // the subscription
	gateway.acknowledged("1")
	for i, want := range []string{"OK of 2", "OK of 2", "OVER_LIMIT of 2"} {
		if got, err := ask(); err != nil || got != want {
			t.Errorf("request %d: %q, %v, want %q", i+1, got, err, want)
		}
	}
	gateway.set("2", config("default/eg/http", 9))
	gateway.acknowledged("2")
	if got, err := ask(); err != nil || got != "OK of 9" {
		t.Errorf("after a change: %q, %v", got, err)
	}
	if harness.MustMetrics(t, "http://127.0.0.1:"+promPort)[`ratelimit_service_rate_limit_over_limit{domain="default/eg/http",key1="user"}`] != 1 {
		t.Error("the gateway's dashboard would not find over_limit")
	}
	harness.MustStop(t, weir)
}
