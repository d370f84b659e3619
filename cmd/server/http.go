package main

import (
	"context"
	"expvar"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/weir-rls/weir/internal/rlconfig"
	"github.com/weir-rls/weir/internal/telemetry"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// newHTTP returns the server of /healthcheck, /livez, /metrics and, unless jsonHandler is nil,
// /json.
func newHTTP(jsonHandler http.Handler, ready *readiness, metrics *telemetry.Metrics) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.isReady() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte("OK"))
	})
	// A kubelet restarts a pod whose /livez fails, so /livez ignores readiness.
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("OK")) })
	if jsonHandler != nil {
		mux.Handle("/json", jsonHandler)
	}
	mux.Handle("/metrics", metrics.Handler)
	return newHTTPServer(mux, 10*time.Second)
}

// newPrometheus returns the server of PROMETHEUS_ADDR, which serves only metrics.
func newPrometheus(path string, metrics *telemetry.Metrics) *http.Server {
	// A ServeMux would panic on a path such as /{.
	return newHTTPServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			http.NotFound(w, r)
			return
		}
		metrics.Handler.ServeHTTP(w, r)
	}), 10*time.Second)
}

// newDebug returns the server of the debug port, with the pages of envoyproxy/ratelimit.
func newDebug(rules func() *descriptors.Rules) *http.Server {
	pages := []struct {
		path, what string
		handler    http.HandlerFunc
	}{
		{"/rlconfig", "the rules in force", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			rlconfig.Write(w, rules())
		}},
		{"/stats", "statistics of the memory, by expvar", expvar.Handler().ServeHTTP},
		{"/debug/pprof/", "profiles", pprof.Index},
		{"/debug/pprof/cmdline", "the name of the program, without its arguments", pprof.Cmdline},
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
	return newHTTPServer(mux, 5*time.Minute)
}

// newHTTPServer returns a server with timeouts for headers, body, response and idle connections.
// write is the timeout of a response.
func newHTTPServer(h http.Handler, write time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: write,
		IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16,
	}
}

// stopHTTPServer rejects new connections and waits for the requests in flight. When ctx ends, it
// closes all connections.
func stopHTTPServer(ctx context.Context, s *http.Server) {
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}
