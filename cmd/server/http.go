package main

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// newHTTP serves what service answers, unless it is nil, and how the process is.
func newHTTP(service http.Handler, ready *readiness, metrics *telemetry.Metrics) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.is() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	// Not ready is no reason to be started again: this says that the process answers, and nothing else.
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("OK")) })
	if service != nil {
		mux.Handle("/json", service)
	}
	mux.Handle("/metrics", metrics.Handler())
	return bounded(mux, 10*time.Second)
}

// newPrometheus serves metrics alone, where PROMETHEUS_ADDR says.
func newPrometheus(path string, metrics *telemetry.Metrics) *http.Server {
	mux := http.NewServeMux()
	mux.Handle(path, metrics.Handler())
	return bounded(mux, 10*time.Second)
}

// newDebug serves the pages of envoyproxy/ratelimit's debug port.
func newDebug(rules func() *descriptors.Rules) *http.Server {
	pages := []struct {
		path, what string
		handler    http.HandlerFunc
	}{
		{"/rlconfig", "the rules in force", func(w http.ResponseWriter, _ *http.Request) { writeRules(w, rules()) }},
		{"/stats", "memory and command line, by expvar", expvar.Handler().ServeHTTP},
		{"/debug/pprof/", "profiles", pprof.Index},
		{"/debug/pprof/cmdline", "the command line", pprof.Cmdline},
		{"/debug/pprof/profile", "30 s of CPU", pprof.Profile},
		{"/debug/pprof/symbol", "symbols", pprof.Symbol},
		{"/debug/pprof/trace", "a trace", pprof.Trace},
	}
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.HandleFunc(p.path, p.handler)
	}
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		for _, p := range pages {
			_, _ = fmt.Fprintf(w, "%s: %s\n", p.path, p.what)
		}
	})
	return bounded(mux, 5*time.Minute)
}

func writeRules(w http.ResponseWriter, rules *descriptors.Rules) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	for r := range rules.All() {
		name := r.Domain + "." + r.Name
		modes := fmt.Sprintf("shadow_mode: %t, quota_mode: %t", r.ShadowMode, r.QuotaMode)
		if r.Unlimited {
			_, _ = fmt.Fprintf(w, "%s: unit=UNKNOWN requests_per_unit=0, %s\n", name, modes)
		}
		for _, l := range r.Limits {
			spec := l.Limit.Spec()
			_, _ = fmt.Fprintf(w, "%s: unit=%s requests_per_unit=%d, %s, unit_multiplier: %d, algorithm: %s, capacity: %d, count_denied: %t\n",
				name, strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, modes, l.UnitMultiplier, spec.Algorithm,
				l.Limit.Capacity(), spec.CountDenied)
		}
	}
}

// bounded is a server whose every wait has an end.
func bounded(h http.Handler, write time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16,
	}
}

func serveHTTP(what string, server *http.Server, l net.Listener) error {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return named(what, err)
	}
	return nil
}

// stopHTTP waits for the requests under way, and ends those that have not ended with ctx.
func stopHTTP(ctx context.Context, s *http.Server) {
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
