package containers_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/testcontainers/testcontainers-go"
	tcnetwork "github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
)

const startTimeout = 2 * time.Minute // far above the time needed: a busy machine must not look like a fault

// A stack is a network of its own, on which containers find each other by name.
type stack struct {
	t   *testing.T
	net *testcontainers.DockerNetwork
}

func newStack(t *testing.T) *stack {
	t.Helper()
	net, err := tcnetwork.New(t.Context())
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, net.Remove(context.Background())) })
	return &stack{t, net}
}

// A recipe describes how to run an image.
type recipe struct {
	image      image
	alias      string // on the network
	entrypoint []string
	args       []string
	env        map[string]string
	mounts     map[string]string // a folder or file of this machine, by the path in the container; read only
	port       int               // is published, and answers when the container is ready
	more       []int             // are published too
	ready      wait.Strategy
	user       string
	restricted bool // by Kubernetes' restricted standard, like Envoy Gateway's containers
}

// A service is a running container.
type service struct {
	*testcontainers.DockerContainer
	t *testing.T
}

func (s *stack) start(r recipe) *service {
	t := s.t
	t.Helper()
	bindings := network.PortMap{}
	var exposed []string
	for _, port := range append([]int{r.port}, r.more...) {
		name := fmt.Sprintf("%d/tcp", port)
		exposed = append(exposed, name)
		bindings[network.MustParsePort(name)] = []network.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1")}}
	}
	c, err := testcontainers.GenericContainer(t.Context(), testcontainers.GenericContainerRequest{
		Started: true,
		ContainerRequest: testcontainers.ContainerRequest{
			Image: r.image.name, Entrypoint: r.entrypoint, Cmd: r.args, Env: r.env, ExposedPorts: exposed,
			Networks: []string{s.net.Name}, NetworkAliases: map[string][]string{s.net.Name: {r.alias}},
			WaitingFor: r.ready,
			ConfigModifier: func(c *container.Config) {
				if r.user != "" {
					c.User = r.user
				}
			},
			HostConfigModifier: func(h *container.HostConfig) {
				h.PortBindings = bindings
				for inside, outside := range r.mounts {
					h.Binds = append(h.Binds, outside+":"+inside+":ro")
				}
				if r.restricted {
					h.ReadonlyRootfs, h.CapDrop, h.SecurityOpt = true, []string{"ALL"}, []string{"no-new-privileges"}
				}
			},
		},
	})
	if c == nil {
		t.Fatal(err)
	}
	one := &service{c.(*testcontainers.DockerContainer), t}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of %s (%s):\n%s", r.alias, r.image.name, one.log())
		}
		must.Succeed(t, one.Terminate(context.Background(), testcontainers.StopTimeout(0)))
	})
	must.Succeed(t, err)
	return one
}

// log returns the end of the container's output.
func (s *service) log() string {
	r, err := s.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	text := string(b)
	return text[max(0, len(text)-8000):]
}

// address returns the current host:port of a published port. It may change at every start.
func (s *service) address(port int) string {
	s.t.Helper()
	mapped, err := s.MappedPort(context.Background(), fmt.Sprintf("%d/tcp", port))
	must.Succeed(s.t, err)
	return fmt.Sprintf("127.0.0.1:%d", mapped.Num())
}

// end stops the container like Kubernetes and expects exit code 0.
func (s *service) end() {
	s.t.Helper()
	most := startTimeout
	must.Succeed(s.t, s.Stop(context.Background(), &most))
	state, err := s.State(context.Background())
	must.Succeed(s.t, err)
	if state.ExitCode != 0 || state.OOMKilled {
		s.t.Errorf("exit code %d after SIGTERM, want 0\n%s", state.ExitCode, s.log())
	}
}

func (s *stack) redis() *service {
	s.t.Helper()
	return s.start(recipe{
		image: images.redis, alias: "redis", port: 6379, entrypoint: []string{images.redis.program},
		args:  []string{"--save", "", "--protected-mode", "no"},
		ready: wait.ForLog("Ready to accept connections").WithStartupTimeout(startTimeout),
	})
}

// onRedis returns the settings of a Weir that counts on the redis of its network.
var onRedis = map[string]string{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379"}

// weir starts the unchanged image as user nobody, without privileges, with rules at /etc/weir. Its
// settings make it insensitive to delays of a busy machine.
func (s *stack) weir(rules string, env ...map[string]string) *service {
	s.t.Helper()
	return s.weirNamed("weir", rules, env...)
}

func (s *stack) weirNamed(alias, rules string, env ...map[string]string) *service {
	s.t.Helper()
	settings := map[string]string{"CONFIG_PATH": "/etc/weir", "STORE_TIMEOUT": "30s", "DRAIN_DELAY": "0s"}
	for _, one := range env {
		maps.Copy(settings, one)
	}
	mounts := map[string]string{"/etc/weir": rules}
	if dir := settings["CERTS"]; dir != "" {
		mounts["/certs"] = dir
		delete(settings, "CERTS")
	}
	return s.start(recipe{
		image: images.weir, alias: alias, port: 8080, more: []int{8081}, env: settings, mounts: mounts, restricted: true,
		ready: wait.ForHTTP("/healthcheck").WithPort("8080/tcp").WithStartupTimeout(startTimeout),
	})
}

// envoy starts Envoy with a bootstrap and returns a proxy that sends requests through it.
func (s *stack) envoy(bootstrap string, mounts ...map[string]string) *proxy {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "envoy.yaml")
	must.Succeed(s.t, os.WriteFile(path, []byte(bootstrap), 0o644))
	all := map[string]string{"/etc/envoy/envoy.yaml": path}
	for _, one := range mounts {
		maps.Copy(all, one)
	}
	e := s.start(recipe{
		image: images.envoy, alias: "envoy", port: 9901, more: []int{10000}, mounts: all,
		entrypoint: []string{images.envoy.program}, user: "0",
		args:  []string{"-c", "/etc/envoy/envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"},
		ready: wait.ForHTTP("/ready").WithPort("9901/tcp").WithStartupTimeout(startTimeout),
	})
	return &proxy{s.t, &harness.Envoy{URL: "http://" + e.address(10000), Admin: "http://" + e.address(9901)}}
}

// A proxy sends requests through Envoy.
type proxy struct {
	t     *testing.T
	envoy *harness.Envoy
}

func (c *proxy) do(user, action string) harness.Answer {
	c.t.Helper()
	a, err := c.envoy.Do(c.t.Context(), user, action)
	must.Succeed(c.t, err)
	return a
}

// allowed sends n requests that must pass and that Weir must have decided.
func (c *proxy) allowed(n int, user, action string) {
	c.t.Helper()
	for i := range n {
		if a := c.do(user, action); a.Status != 200 || a.Limit == "" {
			c.t.Fatalf("%s %s, request %d of %d: %+v, want 200 and a limit", user, action, i+1, n, a)
		}
	}
}

// denied sends a request and expects a denial.
func (c *proxy) denied(user, action string) harness.Answer {
	c.t.Helper()
	a := c.do(user, action)
	if a.Status != 429 || !a.Limited {
		c.t.Fatalf("%s %s: %+v, want 429", user, action, a)
	}
	return a
}

// awaitConnected waits until Envoy has resolved Weir's name and reached it.
func (c *proxy) awaitConnected(action string) {
	c.t.Helper()
	must.Until(c.t, "Envoy reaches a rate limit service", func() bool { return c.do("nobody", action).Limit != "" })
}

// stat returns one of Envoy's statistics, or 0 if it does not exist yet.
func (c *proxy) stat(name string) int {
	c.t.Helper()
	return c.envoy.MustStat(c.t, name)
}
