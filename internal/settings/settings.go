// Package settings declares Weir's settings. Each is a field with its flag, environment variable,
// default and help, from which --help and docs/settings.md are generated. Variables of
// envoyproxy/ratelimit keep their names, values and defaults; those without an effect in Weir are
// in [IgnoredVariables].
package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Serve are the settings of the server.
type Serve struct {
	Rules       `embed:"" group:"rules"`
	XDS         `embed:"" group:"xds"`
	Listeners   `embed:"" group:"listeners"`
	Store       `embed:"" group:"store"`
	PerSecond   `embed:"" group:"persecond"`
	Responses   `embed:"" group:"responses"`
	Stats       `embed:"" group:"stats"`
	Observation `embed:"" group:"observation"`
	Tracing     `embed:"" group:"tracing"`
	Admin       `embed:"" group:"admin"`
	Process     `embed:"" group:"process"`
}

// Groups are the titles of the groups, in order.
var Groups = []struct{ Key, Title string }{
	{"rules", "Rules:"},
	{"xds", "Rules over xDS (CONFIG_TYPE=GRPC_XDS_SOTW):"},
	{"listeners", "Listeners:"},
	{"store", "Store:"},
	{"persecond", "A second Redis for limits per second:"},
	{"responses", "Responses:"},
	{"stats", "Metrics:"},
	{"observation", "Denial log, busiest keys and recording:"},
	{"tracing", "Traces (OpenTelemetry's OTEL_EXPORTER_OTLP_* variables apply too):"},
	{"admin", "Admin API:"},
	{"process", "Process:"},
}

// Validate applies defaults, parses the fields without a flag, and returns all errors. kong calls
// it.
func (s *Serve) Validate() error {
	var errs settingErrors
	s.Rules.complete(&errs)
	s.XDS.complete(&errs, s.ConfigType)
	s.Listeners.complete(&errs)
	s.Store.complete(&errs)
	s.PerSecond.complete(&errs, &s.Store)
	s.Responses.complete(&errs)
	s.Stats.complete(&errs)
	s.Tracing.complete(&errs)
	s.Admin.complete(&errs)
	defaultTopKeys := 0
	if s.AdminAddr != "" {
		defaultTopKeys = 1000
	}
	s.Observation.complete(&errs, defaultTopKeys)
	s.Process.complete(&errs)
	if s.BackendType == Redis && !s.redisUsesTLS() {
		for _, file := range []struct{ variable, value string }{
			{"REDIS_TLS_CACERT", s.RedisCA}, {"REDIS_TLS_CLIENT_CERT", s.RedisCert}, {"REDIS_TLS_CLIENT_KEY", s.RedisKey},
		} {
			if file.value != "" {
				errs.add(file.variable, "no connection to Redis uses TLS: set REDIS_TLS=true, write rediss:// in REDIS_URL, or remove %s", file.variable)
			}
		}
	}
	if s.StopCacheKeyIncrementWhenOverlimit && s.UsePerSecondRedis {
		errs.add("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
			"the limits of a request must be on one Redis: remove it or REDIS_PERSECOND")
	}
	if s.StopCacheKeyIncrementWhenOverlimit && s.RecordPath != "" && s.RecordSample < 1 {
		errs.add("RECORD_SAMPLE", "with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT, a verdict depends on keys outside of the sample: set it to 1")
	}
	return errors.Join(errs...)
}

// redisUsesTLS reports whether a connection to a Redis uses TLS.
func (s *Serve) redisUsesTLS() bool {
	uses := func(tls bool, url string) bool { return tls || strings.Contains(url, "rediss://") }
	return uses(s.Redis.TLS, s.Redis.URL) || s.UsePerSecondRedis && uses(s.PerSecondRedis.TLS, s.PerSecondRedis.URL)
}

// Basic are the most common variables, in the order of --help.
var Basic = []string{
	"CONFIG_PATH", "REDIS_URL", "STORE_TIMEOUT", "GRPC_HOST", "GRPC_PORT", "HOST", "PORT", "MEMORY_SNAPSHOT", "SHADOW_MODE", "LOG_LEVEL",
}

// settingErrors are errors that begin with the name of a variable.
type settingErrors []error

// add adds an error whose text follows the name of a variable and a colon.
func (errs *settingErrors) add(variable, format string, args ...any) {
	*errs = append(*errs, fmt.Errorf(variable+": "+format, args...))
}

// require adds an error that names the bound of a variable, which follows must, and its value.
func (errs *settingErrors) require(variable string, value any, bound string, args ...any) {
	*errs = append(*errs, fmt.Errorf("%s must %s, not %v", variable, fmt.Sprintf(bound, args...), value))
}

// oneOf replaces a value by the allowed value that is equal except for case. If there is none, it
// adds an error.
func (errs *settingErrors) oneOf(variable string, value *string, allowed ...string) {
	i := slices.IndexFunc(allowed, func(a string) bool { return strings.EqualFold(a, *value) })
	if i < 0 {
		last := len(allowed) - 1
		errs.add(variable, "unknown value %q: want %s or %s", *value, strings.Join(allowed[:last], ", "), allowed[last])
		return
	}
	*value = allowed[i]
}

// exclusive adds an error if a variable and the corresponding file are both set.
func (errs *settingErrors) exclusive(variable, value, file string) {
	if value != "" && file != "" {
		errs.add(variable+"_FILE", "%s is set too: remove one of them", variable)
	}
}

// utf8 adds an error for a value that protobuf cannot carry.
func (errs *settingErrors) utf8(variable, value string) {
	if !utf8.ValidString(value) {
		errs.add(variable, "the value is not UTF-8: correct it")
	}
}

// setDefault replaces an empty value, because charts render unset variables as empty.
func setDefault[T comparable](value *T, def T) {
	if *value == *new(T) {
		*value = def
	}
}

// minInterval is the minimum time between two repetitions. A shorter one, such as one with a wrong
// unit, keeps a CPU busy.
const minInterval = 10 * time.Millisecond

func (errs *settingErrors) interval(variable string, d time.Duration) {
	if d < minInterval {
		errs.require(variable, d, "be at least %v", minInterval)
	}
}

func positive[T ~int | ~int64](errs *settingErrors, variable string, n T) {
	if n <= 0 {
		errs.require(variable, n, "be above 0")
	}
}
