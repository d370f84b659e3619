// Package settings is the table of what Weir can be told: each setting a field, with its flag, its environment variable,
// its default and its meaning, from which --help and docs/settings.md are made. The variables are those of
// envoyproxy/ratelimit where it has them, with its names, values and defaults; a file holds those of one subject. Those of
// its variables that have nothing left to set are in [Inert].
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Serve are the settings of the server.
type Serve struct {
	Rules     `embed:"" group:"rules"`
	XDS       `embed:"" group:"xds"`
	Listeners `embed:"" group:"listeners"`
	Store     `embed:"" group:"store"`
	PerSecond `embed:"" group:"persecond"`
	Answers   `embed:"" group:"answers"`
	Stats     `embed:"" group:"stats"`
	Tracing   `embed:"" group:"tracing"`
	Process   `embed:"" group:"process"`
}

// Groups are the titles of the groups, in order.
var Groups = []struct{ Key, Title string }{
	{"rules", "Rules:"},
	{"xds", "Rules by xDS (CONFIG_TYPE=GRPC_XDS_SOTW):"},
	{"listeners", "Listeners:"},
	{"store", "Store:"},
	{"persecond", "A second Redis for windows of one second:"},
	{"answers", "Answers:"},
	{"stats", "Statistics:"},
	{"tracing", "Traces (and OTEL_EXPORTER_OTLP_*, as OpenTelemetry has them):"},
	{"process", "Process:"},
}

// Validate completes the settings, and tells everything that is wrong with them. It is called by kong.
func (s *Serve) Validate() error {
	var f faults
	s.Rules.complete(&f)
	s.XDS.complete(&f, s.ConfigType)
	s.Listeners.complete(&f)
	s.Store.complete(&f)
	s.PerSecond.complete(&f, &s.Store)
	s.Answers.complete(&f)
	s.Stats.complete(&f)
	s.Tracing.complete(&f)
	s.Process.complete(&f)
	if s.BackendType == Redis && !s.redisUsesTLS() {
		for name, set := range map[string]bool{
			"REDIS_TLS_CACERT": s.RedisCA != "", "REDIS_TLS_CLIENT_CERT": s.RedisCert != "", "REDIS_TLS_CLIENT_KEY": s.RedisKey != "",
		} {
			if set {
				f.tell(name, "no connection to Redis uses TLS: set REDIS_TLS=true, write rediss:// in REDIS_URL, or remove %s", name)
			}
		}
	}
	if s.StopCacheKeyIncrementWhenOverlimit && s.RedisPerSecond {
		f.tell("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
			"not together with REDIS_PERSECOND: what is charged whole or not at all has to be on one Redis")
	}
	return errors.Join(f...)
}

// redisUsesTLS reports whether a connection to a Redis uses TLS.
func (s *Serve) redisUsesTLS() bool {
	uses := func(tls bool, url string) bool { return tls || strings.Contains(url, "rediss://") }
	return uses(s.RedisTLS, s.RedisURL) || s.RedisPerSecond && uses(s.PerSecond.TLS, s.PerSecond.URL)
}

// faults collects what is wrong, each with the name of its variable.
type faults []error

func (f *faults) tell(variable, format string, args ...any) {
	*f = append(*f, fmt.Errorf("%s: "+format, append([]any{variable}, args...)...))
}

// oneOf tells a value that is none of the allowed.
func (f *faults) oneOf(variable, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		f.tell(variable, "unknown value %q: want one of %q", value, allowed)
	}
}

// oneOfBoth tells of a variable that is set beside the file that would be in its place.
func (f *faults) oneOfBoth(variable, value, file string) {
	if value != "" && file != "" {
		f.tell(variable+"_FILE", "not together with %s: want one of them", variable)
	}
}

// orDefault stands for what a variable that is set and empty leaves out.
func orDefault(value *string, otherwise string) {
	if *value == "" {
		*value = otherwise
	}
}

func positive[T int | int64 | uint | uint64 | ~float64](f *faults, variable string, n T) {
	if n <= 0 {
		f.tell(variable, "want more than 0")
	}
}
