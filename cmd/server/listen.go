package main

import (
	"fmt"
	"net"

	"github.com/weir-rls/weir/internal/listeners"
	"github.com/weir-rls/weir/internal/settings"
)

// opened are the listeners of the process; prometheus may be nil.
type opened struct{ grpc, http, debug, prometheus net.Listener }

// listen opens all listeners or none.
func listen(s *settings.Serve) (l opened, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if s.GRPCUDS != "" {
		if l.grpc, err = listeners.Unix(s.GRPCUDS); err != nil {
			return l, fmt.Errorf("GRPC_UDS: %w", err)
		}
	} else if l.grpc, err = listeners.TCP(s.GRPCHost, s.GRPCPort); err != nil {
		return l, fmt.Errorf("GRPC_PORT: %w", err)
	}
	if l.http, err = listeners.TCP(s.Host, s.Port); err != nil {
		return l, fmt.Errorf("PORT: %w", err)
	}
	if l.debug, err = listeners.TCP(s.DebugHost, s.DebugPort); err != nil {
		return l, fmt.Errorf("DEBUG_PORT: %w", err)
	}
	if s.UsePrometheus {
		if l.prometheus, err = net.Listen("tcp", s.PrometheusAddr); err != nil {
			return l, fmt.Errorf("PROMETHEUS_ADDR: %w", err)
		}
	}
	return l, nil
}

func (l opened) close() {
	for _, one := range []net.Listener{l.grpc, l.http, l.debug, l.prometheus} {
		if one != nil {
			_ = one.Close()
		}
	}
}
