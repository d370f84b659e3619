package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/internal/redistest"
)

// TestMain makes the test binary the server if WEIR_TEST_AS_SERVER is set, so that tests can send it signals.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_SERVER") != "" {
		main()
	}
	os.Exit(m.Run())
}

const rules = `
domain: ugc
descriptors:
  - key: user_id
    rate_limit: {unit: year, requests_per_unit: 2}
`

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	good, bad, odd := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "odd.yaml")
	write(t, good, rules)
	write(t, bad, "domain: ''\ndescriptors:\n  - key: a\n    rate_limit: {unit: fortnight, requests_per_unit: -1}\n    limits: 3\n")
	write(t, odd, "domain: odd\nunit: day\n")
	empty := filepath.Join(dir, "empty")
	write(t, empty, "\n")
	for _, c := range []struct {
		args     string
		code     int
		out, err []string
	}{
		{"check " + good, 0, []string{"ok: rules 1, domains 1, files 1\n"}, nil},
		{"check " + odd + " " + good, 0, []string{"ok: rules 1, domains 2, files 2\n"}, []string{"warning: " + odd + ":2:1: "}},
		{"check --strict " + odd, 1, nil, []string{odd + ":2:1: key 'unit' has no effect in the file"}},
		{"check " + bad, 1, nil, []string{
			bad + ":1:9: config file cannot have empty domain", bad + ":4:24: invalid rate limit unit 'fortnight'",
			bad + ":4:54: requests_per_unit is -1", bad + ":5:5: unknown key 'limits'",
		}},
		{"check " + filepath.Join(dir, "none"), 1, nil, []string{"none: no such file"}},
		{"check", 2, nil, []string{"weir: check: want a file or folder, for example: weir check rules.yaml"}},
		{"version", 0, []string{"weir ", " " + runtime.Version() + "\n"}, nil},
		{"/bin/ratelimit check " + good, 0, []string{"ok: rules 1, domains 1, files 1\n"}, nil},
		{"--no-such-flag", 2, nil, []string{"no-such-flag"}},
		{"--port=70000 --config " + good, 2, nil, []string{"port"}},
		{"--backend-type=memcache --log-level=loud --store-timeout=0s --config " + good, 2, nil,
			[]string{"BACKEND_TYPE: memcache is not supported", `LOG_LEVEL: unknown level "loud"`, "STORE_TIMEOUT: must be more than 0"}},
		{"--config " + bad, 1, nil, []string{"have faults:\n", bad + ":1:9: ", bad + ":5:5: "}},
		{"--config " + filepath.Join(dir, "none"), 1, nil, []string{"none: no such file", "--config"}},
		{"--grpc-server-use-tls --grpc-server-cert=c --grpc-server-key=k --grpc-client-ca=ca --grpc-client-san=envoy,*.edge --config " + good, 1, nil,
			[]string{`GRPC_CLIENT_TLS_SAN: "*.edge": write the whole name, without a wildcard`}},
		{"--backend-type=redis --redis-url=redis://me:secret@h:1/x --config " + good, 1, nil, []string{"REDIS_URL: the address names a database that is not a number"}},
		{"--backend-type=redis --redis-auth=secret --redis-auth-file=" + empty + " --config " + good, 2, nil, []string{"REDIS_AUTH_FILE: not together with REDIS_AUTH"}},
		{"--backend-type=redis --redis-auth-file=" + empty + " --config " + good, 1, nil, []string{"REDIS_AUTH_FILE: ", empty + " is empty"}},
		{"--backend-type=redis --redis-sentinel-auth-file=" + dir + " --config " + good, 1, nil, []string{"REDIS_SENTINEL_AUTH_FILE: ", dir + " is not a regular file"}},
		{"--backend-type=redis --redis-persecond --redis-persecond-auth-file=/none --config " + good, 1, nil, []string{"REDIS_PERSECOND_AUTH_FILE: ", "/none: no such file"}},
	} {
		var out, err bytes.Buffer
		code := run(context.Background(), "weir", strings.Fields(c.args), &out, &err)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", c.args, code, c.code, &out, &err)
		}
		for _, want := range c.out {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: printed %q, want %q", c.args, &out, want)
			}
		}
		for _, want := range c.err {
			if !strings.Contains(err.String(), want) {
				t.Errorf("%s: said %q, want %q", c.args, &err, want)
			}
		}
		if strings.Contains(err.String(), "secret") {
			t.Errorf("%s: showed a password: %s", c.args, &err)
		}
	}
}

// ran runs a command, and returns its exit code and all that it printed.
func ran(args ...string) (code int, said string) {
	var out, err bytes.Buffer
	code = run(context.Background(), "weir", args, &out, &err)
	return code, out.String() + err.String()
}

// A server is a child process on free ports.
type server struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      lines
	said     output // all output, including the log
	client   ratelimitv3.RateLimitServiceClient
	health   healthv1.HealthClient
	httpAddr string
}

// lines collects log lines, and wakes the goroutines that wait for one.
type lines struct {
	mu   sync.Mutex
	all  []string
	more chan struct{}
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	close(l.more)
	l.more = make(chan struct{})
}

// await returns the first line at index n or later that contains text, and the index after it.
func (l *lines) await(t *testing.T, n int, text string) (string, int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		l.mu.Lock()
		more, all := l.more, l.all
		l.mu.Unlock()
		for ; n < len(all); n++ {
			if strings.Contains(all[n], text) {
				return all[n], n + 1
			}
		}
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("no line with %q in the log:\n%s", text, strings.Join(all, "\n"))
		}
	}
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func isFlag(setting string) bool     { return strings.HasPrefix(setting, "--") }
func isVariable(setting string) bool { return !isFlag(setting) }

// serving starts a server with variables and flags.
func serving(t *testing.T, settings ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command(os.Args[0])}
	s.log.more = make(chan struct{})
	s.cmd.Env = append([]string{
		"WEIR_TEST_AS_SERVER=1", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
		"LOG_FORMAT=json", "DRAIN_DELAY=0s", "STORE_TIMEOUT=5s", "PATH=" + os.Getenv("PATH"),
	}, slices.DeleteFunc(slices.Clone(settings), isFlag)...)
	s.cmd.Args = append(s.cmd.Args, slices.DeleteFunc(slices.Clone(settings), isVariable)...)
	r, w := io.Pipe()
	s.cmd.Stdout, s.cmd.Stderr = &s.said, io.MultiWriter(&s.said, w)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		decoder := json.NewDecoder(r)
		for {
			var line json.RawMessage
			if decoder.Decode(&line) != nil {
				_, _ = io.Copy(io.Discard, r)
				return
			}
			s.log.add(string(line))
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		_ = w.Close()
		<-read
	})
	line, _ := s.log.await(t, 0, `"listening"`)
	var addrs struct{ GRPC, HTTP string }
	if err := json.Unmarshal([]byte(line), &addrs); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addrs.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.client, s.health = ratelimitv3.NewRateLimitServiceClient(conn), healthv1.NewHealthClient(conn)
	s.httpAddr = addrs.HTTP
	return s
}

func (s *server) ask(user string) (*ratelimitv3.RateLimitResponse, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "ugc", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user_id", Value: user}}},
	}})
}

// left sends a request for a user, and returns how many hits remained before it.
func (s *server) left(user string) uint32 {
	s.t.Helper()
	r, err := s.ask(user)
	if err != nil {
		s.t.Fatal(err)
	}
	if r.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		return 0
	}
	return r.GetStatuses()[0].GetLimitRemaining() + 1
}

func (s *server) get(path string) (int, string) {
	s.t.Helper()
	r, err := http.Get("http://" + s.httpAddr + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func (s *server) healthy(service string) bool {
	s.t.Helper()
	r, err := s.health.Check(context.Background(), &healthv1.HealthCheckRequest{Service: service})
	if err != nil {
		s.t.Fatal(err)
	}
	return r.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

func awaitServing(t *testing.T, watch healthv1.Health_WatchClient) {
	t.Helper()
	for {
		r, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
	}
}

// awaitHealthy returns once /healthcheck is 200.
func (s *server) awaitHealthy() {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		if code, body := s.get("/healthcheck"); code == 200 && body == "OK" {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("/healthcheck does not turn 200")
		}
	}
}

// stopped waits for the end and returns the exit code.
func (s *server) stopped() int {
	s.t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

func TestServeOnMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := serving(t, "CONFIG_PATH="+path)

	s.awaitHealthy()
	if !s.healthy("") || !s.healthy("ratelimit") {
		t.Error("gRPC health: not serving")
	}
	s.log.await(t, 0, `"ready"`)
	if n := strings.Count(s.said.String(), `"@message":"ready"`); n != 1 {
		t.Errorf("the log says %d times that the server is ready, want once", n)
	}
	for want := uint32(2); want > 0; want-- {
		if got := s.left("alice"); got != want {
			t.Errorf("alice has %d left, want %d", got, want)
		}
	}
	if s.left("alice") != 0 || s.left("bob") != 2 {
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

func TestRulesAreReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := serving(t, "CONFIG_PATH="+path)
	_, seen := s.log.await(t, 0, "rules loaded")
	if got := s.left("alice"); got != 2 {
		t.Fatalf("%d left, want 2", got)
	}

	write(t, path, strings.Replace(rules, "requests_per_unit: 2", "requests_per_unit: 5", 1))
	_, seen = s.log.await(t, seen, "rules loaded")
	if got := s.left("alice"); got != 4 {
		t.Errorf("after the limit was raised from 2 to 5: %d left, want 4, for the count stays", got)
	}

	write(t, path, "domain: ugc\nlimits: []\n")
	line, seen := s.log.await(t, seen, "rules not loaded")
	if want := fmt.Sprintf(`{"file":%q,"line":2,"column":1,"message":`, path); !strings.Contains(line, want) {
		t.Errorf("the log line lacks %s: %s", want, line)
	}
	if got := s.left("alice"); got != 3 {
		t.Errorf("after a bad file: %d left, want 3 by the old rules", got)
	}

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, seen = s.log.await(t, seen, "no such file")
	if got := s.left("alice"); got != 2 {
		t.Errorf("after the file vanished: %d left, want 2 by the old rules", got)
	}
	if _, metrics := s.get("/metrics"); !strings.Contains(metrics, `weir_rules_loads_total{result="error"} 2`) {
		t.Error("/metrics does not count the two failures")
	}

	write(t, path, strings.Replace(rules, "user_id", "tenant", 1))
	_, _ = s.log.await(t, seen, "rules loaded")
	if r, err := s.ask("alice"); err != nil || r.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("after the rule went: %v, %v", r, err)
	}
	if _, metrics := s.get("/metrics"); strings.Contains(metrics, `rule="user_id"`) {
		t.Error("/metrics keeps the series of a rule that is gone")
	}
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.get("/healthcheck"); got != 200 {
		t.Error("SIGHUP stopped the server")
	}
}

func TestSIGTERMDrainsAndExitsWithZero(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	s := serving(t, "CONFIG_PATH="+path, "DRAIN_DELAY=1h")
	ctx, unwatch := context.WithCancel(context.Background())
	defer unwatch()
	watch, err := s.health.Watch(ctx, &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(t, watch)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v, %v: want a server that drains to be not serving", r, err)
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck while draining: %d, want 500", code)
	}
	if got := s.left("alice"); got != 2 {
		t.Errorf("a server that drains does not answer: %d", got)
	}
	// The second signal ends the drain delay. Requests in flight would still end.
	unwatch()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.stopped(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// terminate sends SIGTERM n times.
func (s *server) terminate(n int) {
	s.t.Helper()
	for range n {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
	}
}

// After any number of SIGTERMs, the server ends with 0 and saves its counters. The first starts the drain delay, the second
// ends it, and the third ends the wait for requests in flight.
func TestEachSIGTERMEndsAWait(t *testing.T) {
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	s := serving(t, "CONFIG_PATH="+rulesFile(t), "DRAIN_DELAY=1h", "STOP_TIMEOUT=1h", "MEMORY_SNAPSHOT="+snapshot)
	// A stream that never ends.
	watch, err := s.health.Watch(context.Background(), &healthv1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(t, watch)
	s.left("alice")
	s.terminate(1)
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Fatalf("%v, %v: want a server that drains to be not serving", r, err)
	}
	s.left("alice") // the server still answers
	s.terminate(1)
	s.awaitClosed()
	s.terminate(1)
	if code := s.stopped(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if again := serving(t, "CONFIG_PATH="+rulesFile(t), "MEMORY_SNAPSHOT="+snapshot).left("alice"); again != 0 {
		t.Errorf("%d left of 2 after 2 were spent: what was counted is lost", again)
	}
}

// A SIGTERM at any time ends the server with 0, even before it serves.
func TestSIGTERMAtStartExitsWithZero(t *testing.T) {
	path := rulesFile(t)
	for range 5 {
		s := serving(t, "CONFIG_PATH="+path) // returns once the log has "listening"
		s.terminate(1)
		if code := s.stopped(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
	}
}

func TestManySIGTERMsExitWithZero(t *testing.T) {
	s := serving(t, "CONFIG_PATH="+rulesFile(t), "DRAIN_DELAY=1h", "STOP_TIMEOUT=1s")
	s.terminate(10)
	for range 3 { // signals that arrive together may count as one
		time.AfterFunc(100*time.Millisecond, func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) })
	}
	if code := s.stopped(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// awaitClosed returns once the server accepts no connection.
func (s *server) awaitClosed() {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", s.address("grpc"), time.Second)
		if err != nil {
			return
		}
		_ = c.Close()
		if time.Now().After(deadline) {
			s.t.Fatal("a server that stops still listens")
		}
	}
}

// SIGTERM ends a server with 0 soon after STOP_TIMEOUT, even if it was never ready or its store hangs.
func TestSIGTERMEndsAHangingServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and sends nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	nobody := redistest.FreeAddr(t)
	path := rulesFile(t)
	for name, c := range map[string]struct {
		settings []string
		freeze   bool // Redis, with requests in flight
	}{
		"no Redis":                 {settings: []string{"CONFIG_PATH=" + path, "REDIS_URL=" + nobody}},
		"a Redis that is silent":   {settings: []string{"CONFIG_PATH=" + path, "REDIS_URL=" + silent.Addr().String(), "STORE_TIMEOUT=1h"}},
		"a Redis that freezes":     {settings: []string{"CONFIG_PATH=" + path, "STORE_TIMEOUT=1h"}, freeze: true},
		"no control plane":         {settings: []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + nobody}},
		"a control plane, silent":  {settings: []string{"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + silent.Addr().String()}},
		"a collector of no traces": {settings: []string{"CONFIG_PATH=" + path, "TRACING_ENABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://" + silent.Addr().String()}},
		"a statsd that is silent":  {settings: []string{"CONFIG_PATH=" + path, "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT=" + port(silent)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var redis *redistest.Server
			if c.freeze {
				redis = redistest.Start(t)
				c.settings = append(c.settings, "REDIS_URL="+redis.Addr)
			}
			s := serving(t, append(c.settings, "STOP_TIMEOUT=500ms")...)
			asked := make(chan error, 51)
			if c.freeze {
				s.left("alice")
				if err := redis.Signal(syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = redis.Signal(syscall.SIGCONT) })
				for i := range 50 {
					go func() {
						_, err := s.ask(fmt.Sprint("user ", i))
						asked <- err
					}()
				}
				go func() {
					const ask = `{"domain":"ugc","descriptors":[{"entries":[{"key":"user_id","value":"bob"}]}]}`
					r, err := http.Post("http://"+s.httpAddr+"/json", "application/json", strings.NewReader(ask))
					if err == nil && r.StatusCode >= 500 {
						err = errors.New(r.Status)
					}
					asked <- err
				}()
				s.awaitUnderWay("51")
			}
			start := time.Now()
			s.terminate(1)
			if code := s.stopped(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("it took %v", took)
			}
			if said := s.said.String(); strings.Contains(said, "panic") {
				t.Errorf("it panicked:\n%s", said)
			}
			if c.freeze {
				for range 51 {
					if err := <-asked; err == nil {
						t.Error("a request that Redis did not decide was answered")
					}
				}
			}
		})
	}
}

func port(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestStartWithoutRedis(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	addr := redistest.FreeAddr(t)
	s := serving(t, "CONFIG_PATH="+path, "REDIS_URL="+addr)
	line, _ := s.log.await(t, 0, "redis does not answer")
	if !strings.Contains(line, addr) {
		t.Errorf("the log does not name %s: %s", addr, line)
	}
	if code, _ := s.get("/healthcheck"); code != 500 {
		t.Errorf("/healthcheck without Redis: %d, want 500", code)
	}
	if s.healthy("") || s.healthy("ratelimit") {
		t.Error("gRPC health without Redis: serving")
	}
	if _, err := s.ask("alice"); status.Code(err) != codes.Unavailable {
		t.Errorf("%v, want UNAVAILABLE", err)
	}

	redis, err := redistest.Run(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	s.log.await(t, 0, "redis answers")
	if got := s.left("alice"); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
	watch, err := s.health.Watch(context.Background(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	awaitServing(t, watch)
	s.awaitHealthy()
}
