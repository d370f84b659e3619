package main

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/backoff"
	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/descriptors/sources/xds"
)

// newXDS returns the control plane of the rules. It passes its events to notify.
func newXDS(s *settings.XDS, notify func(xds.Event), log *zap.Logger) (*xds.Source, error) {
	source := &xds.Source{
		Server:         s.ServerURL,
		NodeID:         s.NodeID,
		NodeMetadata:   s.Metadata,
		Headers:        s.Headers,
		MaxMessageSize: s.MaxMessageSize,
		Backoff:        backoff.Backoff{Initial: s.BackoffInitial, Max: s.BackoffMax},
		Notify:         notify,
	}
	if s.BackoffJitter {
		source.Backoff.Jitter = 1
	}
	if s.UseTLS {
		files := tlsfiles.Client{
			Cert: s.ClientCert, Key: s.ClientKey, CA: s.ServerCA, ServerName: s.ServerSAN, Expired: logExpired(log),
		}
		if _, err := files.Config(); err != nil {
			return nil, fmt.Errorf("CONFIG_GRPC_XDS_SERVER_USE_TLS: %w", err)
		}
		source.TLS = files.Config
	}
	return source, nil
}
