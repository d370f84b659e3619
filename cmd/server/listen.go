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
	"github.com/weir-rls/weir/internal/settings"
)

// A listenerSet has the open listeners of the process. prometheus and admin may be nil.
type listenerSet struct{ grpc, http, debug, prometheus, admin net.Listener }

// listen opens all listeners or none. A draining process may still hold a port, so listen retries for slightly longer than
// DRAIN_DELAY. It does not set SO_REUSEPORT: two processes on one port would silently count separately.
func listen(ctx context.Context, s *settings.Serve, log *zap.Logger) (l listenerSet, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	openGRPC := func() (net.Listener, error) { return listeners.TCP(s.GRPCHost, s.GRPCPort) }
	setting := "GRPC_PORT"
	if s.GRPCUDS != "" {
		openGRPC, setting = func() (net.Listener, error) { return listeners.Unix(s.GRPCUDS) }, "GRPC_UDS"
	}
	ctx, cancel := context.WithTimeout(ctx, s.DrainDelay+time.Second)
	defer cancel()
	l.grpc, err = bind(ctx, setting, openGRPC, log)
	if err != nil {
		return l, err
	}
	l.http, err = bind(ctx, "PORT", func() (net.Listener, error) { return listeners.TCP(s.Host, s.Port) }, log)
	if err != nil {
		return l, err
	}
	l.debug, err = bind(ctx, "DEBUG_PORT", func() (net.Listener, error) { return listeners.TCP(s.DebugHost, s.DebugPort) }, log)
	if err != nil {
		return l, err
	}
	on := func(address string) func() (net.Listener, error) {
		return func() (net.Listener, error) { return net.Listen("tcp", address) }
	}
	if s.UsePrometheus {
		l.prometheus, err = bind(ctx, "PROMETHEUS_ADDR", on(s.PrometheusAddr), log)
		if err != nil {
			return l, err
		}
	}
	if s.AdminAddr != "" {
		l.admin, err = bind(ctx, "ADMIN_ADDR", on(s.AdminAddr), log)
	}
	return l, err
}

// bindBackoff is the wait between attempts to open a port that is in use.
var bindBackoff = backoff.Backoff{Initial: 50 * time.Millisecond, Max: 250 * time.Millisecond}

// bind calls open until the port is free or ctx ends. Its error is [context.Canceled] if ctx was canceled.
func bind(ctx context.Context, setting string, open func() (net.Listener, error), log *zap.Logger) (net.Listener, error) {
	for failures := 0; ; failures++ {
		l, err := open()
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, listeners.ErrInUse) {
			return nil, fmt.Errorf("%s: %w", setting, err)
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

func (l listenerSet) close() {
	for _, listener := range []net.Listener{l.grpc, l.http, l.debug, l.prometheus, l.admin} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}
