package containers_test

import (
	"os"
	"testing"

	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/weir-rls/weir/internal/must"
)

// Weir's image replaces the image of envoyproxy/ratelimit, and is replaced again. Command,
// environment, ConfigMap, Redis and Envoy stay the same. docker-compose passes the command as
// arguments, Kubernetes instead of the entry point; both start the server.
func TestSwitchFromRatelimitAndBack(t *testing.T) {
	t.Parallel()
	if images.incumbent.name == "" {
		if os.Getenv("INCUMBENT_REQUIRED") == "1" {
			t.Fatal("INCUMBENT_REQUIRED is 1, and INCUMBENT is not set")
		}
		t.Skip("INCUMBENT is not set: envoyproxy/ratelimit could not be built here")
	}
	// The window of a year is the one that turns least: envoyproxy/ratelimit has no windows that
	// begin with the first hit.
	const limits = `
domain: weir
descriptors:
  - key: user_id
    descriptors:
      - {key: action, value: login, rate_limit: {unit: year, requests_per_unit: 3}}
      - {key: action, value: reply, rate_limit: {unit: year, requests_per_unit: 5}}
`
	for _, how := range []struct {
		name             string
		entrypoint, args []string
	}{
		{"docker-compose", nil, []string{"/bin/ratelimit"}},
		{"Kubernetes", []string{"/bin/ratelimit"}, nil},
	} {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t)
			s.redis()
			m := rules(t, limits)
			start := func(image image) *service {
				t.Helper()
				r := recipe{
					image: image, alias: "weir", port: 8080, more: []int{8081}, user: "65534:65534", restricted: true,
					entrypoint: how.entrypoint, args: how.args,
					env: map[string]string{
						"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_WATCH_ROOT": "false",
						"RUNTIME_IGNOREDOTFILES": "true", "USE_STATSD": "false", "LOG_LEVEL": "info",
						"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379",
					},
					mounts: map[string]string{"/data/ratelimit/config": m.dir},
					ready:  wait.ForHTTP("/healthcheck").WithPort("8080/tcp").WithStartupTimeout(startTimeout),
				}
				if image == images.incumbent {
					// The public image has no entry point; the one built here has.
					r.entrypoint, r.args = []string{"/bin/ratelimit"}, nil
				} else {
					// Not part of the switch: beside other tests, Redis may take longer than 15 ms.
					r.env["STORE_TIMEOUT"] = "30s"
				}
				return s.start(r)
			}
			incumbent := start(images.incumbent)
			c := s.envoy(bootstrap(t))
			c.awaitConnected("login")
			holds := func(who string) {
				t.Helper()
				for action, limit := range map[string]int{"login": 3, "reply": 5} {
					c.allowed(limit, who, action)
					if a := c.denied(who, action); a.Remaining != 0 {
						t.Errorf("%s %s: %+v", who, action, a)
					}
				}
			}
			holds("alice, of the incumbent")
			most := startTimeout
			must.Succeed(t, incumbent.Stop(t.Context(), &most))

			weir := start(images.weir)
			c.awaitConnected("login")
			holds("bob, of Weir")
			weir.end()

			must.Succeed(t, incumbent.Start(t.Context()))
			c.awaitConnected("login")
			holds("carol, of the incumbent again")
			c.denied("alice, of the incumbent", "login")
			if n := c.stat("cluster.backend.ratelimit.over_limit"); n < 7 {
				t.Errorf("Envoy got OVER_LIMIT %d times, want 7", n)
			}
		})
	}
}
