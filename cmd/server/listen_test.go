package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
)

// freePort returns a port that no process uses.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(redistest.FreeAddr(t))
	must.Succeed(t, err)
	return port
}

// A server that starts while another drains waits for its ports, and finds its counters.
func TestRestartWithinDrainDelayWaitsForThePorts(t *testing.T) {
	settings := []string{
		"CONFIG_PATH=" + rulesFile(t), "MEMORY_SNAPSHOT=" + filepath.Join(t.TempDir(), "snapshot"),
		"PORT=" + freePort(t), "GRPC_PORT=" + freePort(t), "DEBUG_PORT=" + freePort(t), "DRAIN_DELAY=1h",
	}
	first := startServer(t, settings...)
	first.remaining("alice")
	first.remaining("alice")
	first.terminate(1)
	first.log.await(t, 0, `"stopping"`)
	second := startProcess(t, settings...)
	second.log.await(t, 0, "port in use, waiting for it")
	first.terminate(1) // ends the drain delay
	second.connect()
	second.awaitHealthy()
	if got := second.remaining("alice"); got != 0 {
		t.Errorf("alice has %d left after the restart, want 0", got)
	}
	first.awaitStop()
}

func TestPortInUseNamesTheSetting(t *testing.T) {
	port := freePort(t)
	holder := startServer(t, "CONFIG_PATH="+rulesFile(t), "GRPC_PORT="+port)
	start := time.Now()
	code, said := runWeir("--config="+rulesFile(t), "--port=0", "--debug-port=0", "--grpc-port="+port, "--grpc-host=127.0.0.1", "--drain-delay=0s")
	for _, want := range []string{"GRPC_PORT: ", "address already in use", "set GRPC_PORT (--grpc-port) to another"} {
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("exit code %d, want 1; said %q, want %q", code, said, want)
		}
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("it waited %v for the port, want at least 1s", took)
	}
	if got := holder.remaining("alice"); got != 2 {
		t.Errorf("the server that holds the port: alice has %d left, want 2", got)
	}
}

// A port cannot be opened if its host is faulty.
func TestHostThatCannotBeUsedIsNamed(t *testing.T) {
	for flag, want := range map[string]string{
		"--host=localhost:9000": "weir: HOST or PORT: ", "--grpc-host=192.0.2.1": "weir: GRPC_HOST or GRPC_PORT: ",
		"--debug-host=localhost:9000": "weir: DEBUG_HOST or DEBUG_PORT: ",
	} {
		code, said := runWeir("--config="+rulesFile(t), "--host=127.0.0.1", "--port=0", "--grpc-host=127.0.0.1", "--grpc-port=0", "--debug-port=0", flag)
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, want 1; said %q, want %q", flag, code, said, want)
		}
	}
}

// A process that waits for a port has nothing to drain.
func TestSignalEndsTheWaitForPorts(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startServer(t, "CONFIG_PATH="+rulesFile(t), "GRPC_PORT="+port)
	waiting := startProcess(t, "CONFIG_PATH="+rulesFile(t), "GRPC_PORT="+port, "DRAIN_DELAY=1h")
	waiting.log.await(t, 0, "port in use, waiting for it")
	waiting.stop()
	waiting.log.await(t, 0, "stopped before it listened")
	if text := waiting.output.String(); strings.Contains(text, "start timed out") {
		t.Errorf("the signal did not end the wait: %s", text)
	}
}

// If no port was in use, the server has started, and its run must find the signal.
func TestSignalDuringTheStartIsNotLost(t *testing.T) {
	var parsed commands
	parser, err := newParser(&parsed)
	must.Succeed(t, err)
	args := []string{"serve", "--config=" + rulesFile(t), "--host=127.0.0.1", "--grpc-host=127.0.0.1", "--port=0", "--grpc-port=0", "--debug-port=0"}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGTERM
	stop := newStopper(signals)
	<-stop.requested.Done()
	p, err := openUntilSignal(t.Context(), &parsed.Serve.Serve, zap.NewNop(), zap.NewNop(), stop)
	if err != nil || p == nil {
		t.Fatal(err, p)
	}
	defer p.close()
	if got := stop.wait(t.Context()); got != syscall.SIGTERM {
		t.Errorf("the signal is %v, want SIGTERM", got)
	}
}

func TestTCPAcceptsBracketedHosts(t *testing.T) {
	l, err := listen("tcp", hostPort("[::1]", 0))
	must.Succeed(t, err)
	_ = l.Close()
}

func TestUnixReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := listen("unix", path)
	must.Succeed(t, err)
	if _, err := listen("unix", path); err == nil || !strings.Contains(err.Error(), path+": another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	l, err = listen("unix", path)
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	_ = l.Close()
	must.Succeed(t, os.WriteFile(path, []byte("data"), 0o600))
	if _, err := listen("unix", path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "data" {
		t.Errorf("the file was removed: %q, %v", data, err)
	}
}

// A server that is too busy to accept still has its socket. A second server on its path would have
// counters of its own.
func TestUnixLeavesTheSocketOfABusyServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	defer func() { _ = syscall.Close(fd) }()
	must.Succeed(t, errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}), syscall.Listen(fd, 0)))
	for range 3 { // fill the queue of connections
		if c, err := net.DialTimeout("unix", path, 10*time.Millisecond); err == nil {
			defer func() { _ = c.Close() }()
		}
	}
	if l, err := listen("unix", path); !errors.Is(err, errSocketInUse) {
		t.Errorf("%v, %v: want errSocketInUse", l, err)
	}
}

// A datagram socket, such as that of a log daemon, refuses no connection: it has the wrong type for
// one.
func TestUnixLeavesASocketOfAnotherType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must.Succeed(t, err)
	defer func() { _ = daemon.Close() }()
	if l, err := listen("unix", path); !errors.Is(err, errSocketInUse) {
		t.Errorf("%v, %v: want errSocketInUse", l, err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket was removed: %v", err)
	}
}
