package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/listeners"
)

// A listenerSet holds the open listeners of the process. prometheus and admin may be nil.
type listenerSet struct{ grpc, http, debug, prometheus, admin net.Listener }

// openListeners opens the ports. A draining process may still hold a port, so openListeners retries
// for slightly longer than DRAIN_DELAY. It does not set SO_REUSEPORT: two processes on one port
// would silently count separately.
func (e *environment) openListeners(ctx context.Context) (l listenerSet, err error) {
	s := e.settings
	tcp := func(host string, port uint16) func() (net.Listener, error) {
		return func() (net.Listener, error) { return listeners.TCP(host, port) }
	}
	on := func(address string) func() (net.Listener, error) {
		return func() (net.Listener, error) { return net.Listen("tcp", address) }
	}
	type port struct {
		setting string
		open    func() (net.Listener, error)
		into    *net.Listener
	}
	ports := []port{
		{"GRPC_PORT", tcp(s.GRPCHost, s.GRPCPort), &l.grpc}, {"PORT", tcp(s.Host, s.Port), &l.http},
		{"DEBUG_PORT", tcp(s.DebugHost, s.DebugPort), &l.debug},
	}
	if s.GRPCUDS != "" {
		ports[0] = port{"GRPC_UDS", func() (net.Listener, error) { return listeners.Unix(s.GRPCUDS) }, &l.grpc}
	}
	if s.UsePrometheus {
		ports = append(ports, port{"PROMETHEUS_ADDR", on(s.PrometheusAddr), &l.prometheus})
	}
	if s.AdminAddr != "" {
		ports = append(ports, port{"ADMIN_ADDR", on(s.AdminAddr), &l.admin})
	}
	ctx, cancel := context.WithTimeout(ctx, s.DrainDelay+time.Second)
	defer cancel()
	for _, port := range ports {
		listener, err := bind(ctx, port.setting, port.open, e.log)
		if err != nil {
			return l, err
		}
		*port.into = listener
		e.closers = append(e.closers, func() { _ = listener.Close() })
	}
	return l, nil
}

// bindBackoff is the wait between attempts to open a port that is in use.
var bindBackoff = backoff.Backoff{Initial: 50 * time.Millisecond, Max: 250 * time.Millisecond}

// bind calls open until the port is free or ctx ends. Its error is [context.Canceled] if ctx was
// canceled.
func bind(ctx context.Context, setting string, open func() (net.Listener, error), log *zap.Logger) (net.Listener, error) {
	for failures := 0; ; failures++ {
		l, err := open()
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, listeners.ErrInUse) {
			return nil, fmt.Errorf("%s: %w", strings.Replace(setting, "PORT", "HOST or "+setting, 1), err)
		}
		if failures == 0 {
			log.Warn("port in use, waiting for it", zap.String("setting", setting), zap.Error(err))
		}
		switch ended := backoff.Sleep(ctx, bindBackoff.Wait(failures)); {
		case errors.Is(ended, context.Canceled):
			return nil, ended
		case ended != nil:
			flag := strings.ToLower(strings.ReplaceAll(setting, "_", "-"))
			return nil, fmt.Errorf("%s: %w: stop the process that uses it, or set %s (--%s) to another", setting, err, setting, flag)
		}
	}
}
