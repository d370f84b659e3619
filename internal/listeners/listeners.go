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
	"time"
)

// TCP listens on a host, of either family, and a port.
func TCP(host string, port uint16) (net.Listener, error) {
	// An address of the later family may stand in brackets, as it would before a port.
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// Unix listens on a socket at path. A socket that a process left behind is replaced; another file is not.
func Unix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s is there and no socket", path)
	default:
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			_ = c.Close()
			return nil, fmt.Errorf("another process listens on %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}
