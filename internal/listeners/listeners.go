// Package listeners opens TCP and unix listeners.
package listeners

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// TCP listens on a port of a host, which is a name or an IPv4 or IPv6 address.
func TCP(host string, port uint16) (net.Listener, error) {
	// An IPv6 address may have the brackets that it needs before a port.
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// ErrInUse is the error of a unix socket on which another process listens.
var ErrInUse = errors.New("another process listens on the socket")

// Unix listens on a socket at path. It replaces a socket that a process left behind, and
// no other file. The error is ErrInUse if another process listens.
func Unix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s exists and is not a socket: remove it, or set another path", path)
	default:
		if isInUse(path) {
			return nil, fmt.Errorf("%s: %w", path, ErrInUse)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}

// isInUse reports whether a process listens on a socket. The process may be too busy to accept: then the queue of connections is full.
func isInUse(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return true
	}
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, os.ErrDeadlineExceeded)
}
