package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
)

// A listenerSet holds the open listeners of the process. prometheus and admin may be nil.
type listenerSet struct{ grpc, http, debug, prometheus, admin net.Listener }

// A portSettings is an address on which Weir listens.
type portSettings struct {
	setting, flag    string // for example GRPC_PORT and --grpc-port
	addressSettings  string // the settings of the whole address
	network, address string
	into             *net.Listener
}

// openListeners opens the ports. A draining process may still hold a port, so openListeners retries
// for slightly longer than DRAIN_DELAY. It does not set SO_REUSEPORT: two processes on one port
// would silently count separately.
func (e *environment) openListeners(ctx context.Context) (l listenerSet, err error) {
	s := e.settings
	ports := []portSettings{
		{"GRPC_PORT", "--grpc-port", "GRPC_HOST or GRPC_PORT", "tcp", hostPort(s.GRPCHost, s.GRPCPort), &l.grpc},
		{"PORT", "--port", "HOST or PORT", "tcp", hostPort(s.Host, s.Port), &l.http},
		{"DEBUG_PORT", "--debug-port", "DEBUG_HOST or DEBUG_PORT", "tcp", hostPort(s.DebugHost, s.DebugPort), &l.debug},
	}
	if s.GRPCUDS != "" {
		ports[0] = portSettings{"GRPC_UDS", "--grpc-uds", "GRPC_UDS", "unix", s.GRPCUDS, &l.grpc}
	}
	if s.UsePrometheus {
		ports = append(ports, portSettings{"PROMETHEUS_ADDR", "--prometheus-addr", "PROMETHEUS_ADDR", "tcp", s.PrometheusAddr, &l.prometheus})
	}
	if s.AdminAddr != "" {
		ports = append(ports, portSettings{"ADMIN_ADDR", "--admin-addr", "ADMIN_ADDR", "tcp", s.AdminAddr, &l.admin})
	}
	ctx, cancel := context.WithTimeout(ctx, s.DrainDelay+time.Second)
	defer cancel()
	for _, port := range ports {
		listener, err := port.bind(ctx, e.log)
		if err != nil {
			return l, err
		}
		*port.into = listener
		e.closers = append(e.closers, func() { _ = listener.Close() })
	}
	return l, nil
}

// hostPort returns the address of a port of host, a name or an IP address. An IPv6 address may be
// in brackets.
func hostPort(host string, port uint16) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// bindBackoff is the wait between attempts to open a port that is in use.
var bindBackoff = backoff.Backoff{Initial: 50 * time.Millisecond, Max: 250 * time.Millisecond}

// bind listens, once the port is free. It fails when ctx ends. Its error is [context.Canceled] if
// ctx was canceled.
func (p *portSettings) bind(ctx context.Context, log *zap.Logger) (net.Listener, error) {
	for failures := 0; ; failures++ {
		l, err := listen(p.network, p.address)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, errSocketInUse) {
			return nil, fmt.Errorf("%s: %w", p.addressSettings, err)
		}
		if failures == 0 {
			log.Warn("port in use, waiting for it", zap.String("setting", p.setting), zap.Error(err))
		}
		switch ended := backoff.Sleep(ctx, bindBackoff.Wait(failures)); {
		case errors.Is(ended, context.Canceled):
			return nil, ended
		case ended != nil:
			return nil, fmt.Errorf("%s: %w: stop the process that uses it, or set %s (%s) to another", p.setting, err, p.setting, p.flag)
		}
	}
}

// listen listens on an address. It replaces a stale unix socket, but no other file.
func listen(network, address string) (net.Listener, error) {
	if network == "unix" {
		if err := removeStaleSocket(address); err != nil {
			return nil, err
		}
	}
	return net.Listen(network, address)
}

// errSocketInUse is returned for a unix socket on which another process listens.
var errSocketInUse = errors.New("another process listens on the socket")

func removeStaleSocket(path string) error {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s exists and is not a socket: remove it, or set another path", path)
	}
	// Only a stale socket refuses connections: a socket whose accept queue is full, to which this
	// process has no access, or which is of another type gives another error.
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%s: %w", path, errSocketInUse)
	}
	return os.Remove(path)
}
