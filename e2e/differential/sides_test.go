package differential

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weir-rls/weir/e2e/harness"
	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// sideTimeout is far longer than a start, an end or a call takes on a busy machine.
const sideTimeout = 2 * time.Minute

// A file is a rules file.
type file struct{ name, text string }

// A side is one of the two servers under test.
type side struct {
	client ratelimitv3.RateLimitServiceClient
	conn   *grpc.ClientConn
	log    *syncBuffer
	done   chan struct{}
	dir    string // the folder of its rules
	cmd    *exec.Cmd
}

// startRatelimit starts envoyproxy/ratelimit with files and env on a Redis of its own. startWeir
// does the same for Weir, with two more settings, which affect timing only.
func startRatelimit(t *testing.T, files []file, env ...string) *side {
	t.Helper()
	return startSide(t, ratelimitBinary(t), files, env...)
}

func startWeir(t *testing.T, files []file, env ...string) *side {
	t.Helper()
	binary := weirBinary(t)
	return startSide(t, binary, files, append(env, "STORE_TIMEOUT=1m", "DRAIN_DELAY=0s")...)
}

func startSide(t *testing.T, binary string, files []file, env ...string) *side {
	t.Helper()
	s, grpcAddr, httpAddr := runSide(t, binary, files, env...)
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.done:
			t.Fatalf("%s ended:\n%s", filepath.Base(binary), s.log)
		default:
		}
		res, err := http.Get("http://" + httpAddr + "/healthcheck")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Since(start) > sideTimeout {
			t.Fatalf("%s is not ready in time (%v):\n%s", filepath.Base(binary), err, s.log)
		}
	}
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s.conn, s.client = conn, ratelimitv3.NewRateLimitServiceClient(conn)
	return s
}

// runSide starts a server and does not wait until it is ready. The server ends with the test.
func runSide(t *testing.T, binary string, files []file, env ...string) (s *side, grpcAddr, httpAddr string) {
	t.Helper()
	ports := harness.MustFreePorts(t, 3)
	port := func(i int) string { return strconv.Itoa(ports[i]) }
	root := t.TempDir()
	s = &side{log: &syncBuffer{}, done: make(chan struct{}), dir: filepath.Join(root, "ratelimit", "config")}
	must.Succeed(t, os.MkdirAll(s.dir, 0o700))
	for _, f := range files {
		s.write(t, f)
	}
	s.cmd = exec.Command(binary)
	s.cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		"GRPC_PORT=" + port(0), "PORT=" + port(1), "DEBUG_PORT=" + port(2),
		"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit",
		"RUNTIME_WATCH_ROOT=false", "RUNTIME_IGNOREDOTFILES=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redistest.Start(t).Addr,
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=warn",
	}, env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = childAttr()
	must.Succeed(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait() // the log says why
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s, net.JoinHostPort("127.0.0.1", port(0)), net.JoinHostPort("127.0.0.1", port(1))
}

// write writes a rules file atomically.
func (s *side) write(t *testing.T, f file) {
	t.Helper()
	aside := filepath.Join(filepath.Dir(s.dir), f.name)
	must.Write(t, aside, f.text)
	must.Succeed(t, os.Rename(aside, filepath.Join(s.dir, f.name)))
}

// ends stops the server, which must still be running and must exit with code 0.
func (s *side) ends(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, s.log)
	}
	select {
	case <-s.done:
		if code := s.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, s.log)
		}
	case <-time.After(sideTimeout):
		t.Errorf("still running %v after SIGTERM:\n%s", sideTimeout, s.log)
	}
}

func (s *side) ask(ctx context.Context, request *ratelimitv3.RateLimitRequest) answer {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	response, err := s.client.ShouldRateLimit(ctx, request)
	return answer{response, err}
}

// A syncBuffer is a log that is written and read concurrently.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
