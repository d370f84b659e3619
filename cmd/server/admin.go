package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/weir-rls/weir/internal/settings"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/internal/tlsfiles"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/rls"
)

// An adminServer serves the admin API on ADMIN_ADDR. If it fails, the process continues without it.
type adminServer struct {
	api      *admin.API
	server   *http.Server
	listener net.Listener
	log      *zap.Logger
}

// openAdmin opens the admin server on l.
func (p *process) openAdmin(l net.Listener) (*adminServer, error) {
	s := p.settings
	log := p.log
	auth, err := adminAuth(s, log)
	if err != nil {
		return nil, err
	}
	l, err = adminTLS(s, l, log)
	if err != nil {
		return nil, err
	}
	if s.AdminIsExposed() {
		log.Warn("admin API without TLS is reachable from other machines",
			zap.String("remedy", "set ADMIN_TLS_CERT and ADMIN_TLS_KEY, or write ADMIN_ADDR=127.0.0.1:PORT"))
	}
	o := p.adminOptions()
	o.Auth = auth
	o.Resets, err = p.openResets(p.store)
	if err != nil {
		return nil, err
	}
	a := &adminServer{api: admin.New(o), listener: l, log: log}
	a.server = newHTTPServer(a.api, 30*time.Second)
	// Clients can cause any number of failed handshakes, so they are logged at debug level only.
	a.server.ErrorLog, err = zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		return nil, err
	}
	p.tasks = append(p.tasks, a.api.Run)
	return a, nil
}

// adminOptions returns the options of the admin API without Auth and Resets.
func (p *process) adminOptions() admin.Options {
	s := p.settings
	o := admin.Options{
		Version:       buildVersion(),
		Rules:         p.loader.Rules,
		Store:         p.store.belowFallback,
		Decide:        decideOptions(s),
		ParseRequest:  rls.ParseRequest,
		Status:        p.status,
		Subscribe:     p.decisions.Subscribe,
		Hits:          p.metrics.RuleHits,
		StoreCalls:    p.metrics.StoreCalls,
		KeyHashSecret: []byte(s.KeyHashSecret),
		Audit:         changeLog(p.audit),
		Unauthorized:  attemptLog(p.log),
		Answered:      p.metrics.RegisterAdmin(),
		StoreFailed:   adminFailureLog(p.log),
		Panicked:      p.panicked,
	}
	if p.shadow != nil {
		o.Shadow = func(limits, keys int) api.ShadowReport {
			return p.shadow.report(limits, keys, p.store.replicas.Number())
		}
	}
	if p.topKeys != nil {
		o.Top = p.topKeys.Top
	}
	return o
}

func changeLog(log *zap.Logger) func(admin.Change) {
	return func(c admin.Change) {
		log.Info("admin change", zap.String("who", c.Caller), zap.String("action", c.Action), zap.String("domain", c.Domain),
			zap.String("key_hash", c.KeyHash), zap.String("outcome", c.Outcome), zap.String("detail", c.Detail))
	}
}

func adminFailureLog(log *zap.Logger) func(route string, reason error) {
	log = telemetry.OncePerSecond(log)
	return func(route string, reason error) {
		log.Error("store failed: admin call not answered", zap.String("route", route), zap.Error(reason))
	}
}

func attemptLog(log *zap.Logger) func(admin.UnauthorizedCall) {
	log = telemetry.OncePerSecond(log)
	return func(a admin.UnauthorizedCall) {
		log.Warn("admin call without valid credentials", zap.String("remote", a.Remote), zap.String("http_method", a.Method),
			zap.String("route", a.Route))
	}
}

func adminAuth(s *settings.Serve, log *zap.Logger) (auth admin.Auth, err error) {
	auth.Certificates = s.AdminClientCA != ""
	if s.AdminTokenFile == "" {
		return auth, nil
	}
	auth.Tokens, err = admin.ReadTokens(s.AdminTokenFile, func(err error) {
		log.Error("admin tokens not reloaded, the old ones stay in use", zap.Error(err))
	})
	if err != nil {
		return auth, fmt.Errorf("ADMIN_TOKEN_FILE: %w", err)
	}
	return auth, nil
}

// adminTLS wraps l in TLS if the settings have a certificate. Client certificates are optional if
// clients may send a token instead.
func adminTLS(s *settings.Serve, l net.Listener, log *zap.Logger) (net.Listener, error) {
	if s.AdminCert == "" {
		return l, nil
	}
	files := tlsfiles.Server{
		Cert: s.AdminCert, Key: s.AdminKey, ClientCA: s.AdminClientCA, Optional: s.AdminTokenFile != "", Expired: logExpired(log),
		Protocols: []string{"h2", "http/1.1"},
	}
	config, err := files.Config(func(err error) {
		log.Error("certificates of the admin API not reloaded, the old ones stay in use", zap.Error(err))
	})
	if err != nil {
		return nil, fmt.Errorf("ADMIN_TLS_CERT: %w", err)
	}
	return tls.NewListener(l, config), nil
}

// status returns the status for the admin API.
func (p *process) status() api.Status {
	load := p.gate.Stats()
	status := api.Status{
		Replica: p.hostname, Ready: p.ready.isReady(), InFlight: load.InFlight, Shed: load.Shed,
		Store: api.StoreStatus{Kind: p.settings.BackendType, Mode: api.ModeOK, Keys: p.store.local.Stats().Keys},
	}
	if p.store.fallback.Stats().Down {
		status.Store.Mode = api.ModeLost
		if canDecideWithoutStore(p.loader.Rules()) {
			status.Store.Mode = api.ModeFallback
		}
	}
	return status
}

// serve serves until stop is called.
func (a *adminServer) serve() {
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		a.log.Error("the admin API has stopped, the rate limit service has not", zap.Error(err),
			zap.String("remedy", "restart this process to restore the admin API"))
	}
}

// stop rejects new calls, ends event streams, and waits for all other calls until ctx ends.
func (a *adminServer) stop(ctx context.Context) {
	a.api.Stop()
	stopHTTPServer(ctx, a.server)
}
