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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-rls/weir/internal/must"
)

// TestMain makes the test binary the server if WEIR_TEST_AS_SERVER is set, so that tests can send
// it signals.
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

// maxWait bounds the wait for each event, also on a busy machine.
const maxWait = 2 * time.Minute

// write writes a file in one step: on a busy machine, a server that watches the file would
// otherwise read it empty.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := filepath.Join(filepath.Dir(path), ".next-"+filepath.Base(path))
	must.Succeed(t, errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, path)))
}

// runWeir runs a command and returns its exit code and its output.
func runWeir(args ...string) (code int, text string) {
	var out, err bytes.Buffer
	code = run(context.Background(), "weir", args, &out, &err)
	return code, out.String() + err.String()
}

// A server is a child process on free ports.
type server struct {
	t        *testing.T
	cmd      *exec.Cmd
	log      lines
	output   output // all output, including the log
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
	deadline := time.After(must.LongestWait(t, maxWait))
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

func isFlag(setting string) bool { return strings.HasPrefix(setting, "--") }

func isVariable(setting string) bool { return !isFlag(setting) }

// startServer starts a server with variables and flags, and returns once it listens.
func startServer(t *testing.T, settings ...string) *server {
	t.Helper()
	s := startProcess(t, settings...)
	s.connect()
	return s
}

// startProcess is like startServer, but returns immediately. The server has no client until
// [server.connect].
func startProcess(t *testing.T, settings ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: serverCommand(settings)}
	s.log.more = make(chan struct{})
	r, w := io.Pipe()
	s.cmd.Stdout, s.cmd.Stderr = &s.output, io.MultiWriter(&s.output, w)
	must.Succeed(t, s.cmd.Start())
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
	return s
}

func serverCommand(settings []string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], slices.DeleteFunc(slices.Clone(settings), isVariable)...)
	cmd.Env = append([]string{
		"WEIR_TEST_AS_SERVER=1", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
		"LOG_FORMAT=json", "DRAIN_DELAY=0s", "STORE_TIMEOUT=5s", "PATH=" + os.Getenv("PATH"), "GORACE=" + os.Getenv("GORACE"),
	}, slices.DeleteFunc(slices.Clone(settings), isFlag)...)
	return cmd
}

// connect waits until the server listens, and connects its clients.
func (s *server) connect() {
	s.t.Helper()
	conn, err := grpc.NewClient(s.address("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.client, s.health = ratelimitv3.NewRateLimitServiceClient(conn), healthv1.NewHealthClient(conn)
	s.httpAddr = s.address("http")
}

func (s *server) call(user string) (*ratelimitv3.RateLimitResponse, error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	return s.client.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "ugc", Descriptors: []*commonv3.RateLimitDescriptor{
		{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user_id", Value: user}}},
	}})
}

// remaining sends a request for a user, and returns how many hits remained before it.
func (s *server) remaining(user string) uint32 {
	s.t.Helper()
	r, err := s.call(user)
	must.Succeed(s.t, err)
	if r.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT {
		return 0
	}
	return r.GetStatuses()[0].GetLimitRemaining() + 1
}

func (s *server) get(path string) (int, string) {
	s.t.Helper()
	r, err := http.Get("http://" + s.httpAddr + path)
	must.Succeed(s.t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must.Succeed(s.t, err)
	return r.StatusCode, string(body)
}

func (s *server) healthy(service string) bool {
	s.t.Helper()
	r, err := s.health.Check(context.Background(), &healthv1.HealthCheckRequest{Service: service})
	must.Succeed(s.t, err)
	return r.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

func awaitServing(t *testing.T, watch healthv1.Health_WatchClient) {
	t.Helper()
	for {
		r, err := watch.Recv()
		must.Succeed(t, err)
		if r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
	}
}

// awaitHealthy returns once /healthcheck is 200.
func (s *server) awaitHealthy() {
	s.t.Helper()
	must.Until(s.t, "a /healthcheck of 200", func() bool {
		code, body := s.get("/healthcheck")
		return code == 200 && body == "OK"
	})
}

// awaitInFlight returns once n requests are in flight.
func (s *server) awaitInFlight(n string) {
	s.t.Helper()
	must.Until(s.t, n+" requests in flight", func() bool { return s.metric("weir_requests_in_flight") == n })
}

// stop sends SIGTERM, and expects the server to end with exit code 0.
func (s *server) stop() {
	s.t.Helper()
	s.terminate(1)
	s.awaitStop()
}

// awaitStop expects a server that has received a signal to end with exit code 0.
func (s *server) awaitStop() {
	s.t.Helper()
	timer := time.AfterFunc(must.LongestWait(s.t, maxWait), func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the server ended with %v, want exit code 0", err)
	}
}

// terminate sends SIGTERM n times.
func (s *server) terminate(n int) {
	s.t.Helper()
	for range n {
		must.Succeed(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	}
}

// awaitClosed returns once the server accepts no connection.
func (s *server) awaitClosed() {
	s.t.Helper()
	must.Until(s.t, "the stopping server to close its port", func() bool {
		c, err := net.Dial("tcp", s.address("grpc"))
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func rulesFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, path, rules)
	return path
}

// address returns the address of a listener of the server.
func (s *server) address(name string) string {
	s.t.Helper()
	line, _ := s.log.await(s.t, 0, `"listening"`)
	var addrs map[string]any
	must.Succeed(s.t, json.Unmarshal([]byte(line), &addrs))
	return fmt.Sprint(addrs[name])
}

// fetch returns the status and the body of a response, or the part of the body that has arrived.
func fetch(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// metric returns the value of a metric, which must exist. name has its labels, if any.
func (s *server) metric(name string) string {
	s.t.Helper()
	value := s.metricOrNone(name)
	if value == "none" {
		s.t.Fatalf("/metrics lacks %s", name)
	}
	return value
}

// metricOrNone is like metric, but returns "none" for a metric that does not exist.
func (s *server) metricOrNone(name string) string {
	s.t.Helper()
	_, metrics := s.get("/metrics")
	for line := range strings.Lines(metrics) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return "none"
}
