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

// TCP listens on a port of host, a name or an IP address.
func TCP(host string, port uint16) (net.Listener, error) {
	// An IPv6 address may be in brackets.
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// ErrInUse is returned for a unix socket on which another process listens.
var ErrInUse = errors.New("another process listens on the socket")

// Unix listens on a unix socket at path. It replaces a stale socket, but no other file. It returns
// ErrInUse if another process listens.
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

// isInUse reports whether the socket may be in use. Only a stale one refuses connections: a socket
// whose accept queue is full, to which this process has no access, or which is of another type
// gives another error.
func isInUse(path string) bool {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
		return true
	}
	return !errors.Is(err, syscall.ECONNREFUSED)
}
