package listeners

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func TestTCPAcceptsBracketedHosts(t *testing.T) {
	l, err := TCP("[::1]", 0)
	must.Succeed(t, err)
	_ = l.Close()
}

func TestUnixReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := Unix(path)
	must.Succeed(t, err)
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), path+": another process listens") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	l, err = Unix(path)
	if err != nil {
		t.Fatalf("a socket left behind: %v", err)
	}
	_ = l.Close()
	must.Succeed(t, os.WriteFile(path, []byte("data"), 0o600))
	if _, err := Unix(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
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
	if l, err := Unix(path); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, %v: want ErrInUse", l, err)
	}
}

// A datagram socket, such as that of a log daemon, refuses no connection: it has the wrong type for
// one.
func TestUnixLeavesASocketOfAnotherType(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	daemon, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must.Succeed(t, err)
	defer func() { _ = daemon.Close() }()
	if l, err := Unix(path); !errors.Is(err, ErrInUse) {
		t.Errorf("%v, %v: want ErrInUse", l, err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the socket was removed: %v", err)
	}
}
