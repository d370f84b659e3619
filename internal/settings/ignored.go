package settings

import (
	"errors"
	"strconv"
	"time"
)

// parsedBy returns a function that reports whether envoyproxy/ratelimit, which calls parse, accepts
// the value of a variable.
func parsedBy[T any](parse func(string) (T, error)) func(string) bool {
	return func(value string) bool {
		_, err := parse(value)
		return err == nil
	}
}

var (
	anyText  = func(string) bool { return true }
	boolean  = parsedBy(strconv.ParseBool)
	integer  = parsedBy(strconv.Atoi)
	duration = parsedBy(time.ParseDuration)
	number   = parsedBy(func(value string) (float64, error) { return strconv.ParseFloat(value, 64) })
)

// IgnoredVariables are the variables of envoyproxy/ratelimit without an effect in Weir, with the
// reason. Weir validates their values and logs each at start.
var IgnoredVariables = []struct {
	Variable, Why string
	isValid       func(value string) bool
}{
	{"RUNTIME_WATCH_ROOT", "Weir notices both a replaced root and a changed file", boolean},
	{"RUNTIME_IGNOREDOTFILES", "Weir always ignores names that begin with a dot, such as ..data of a ConfigMap", boolean},
	{"EXPIRATION_JITTER_MAX_SECONDS", "keys expire when they have fully reset; nothing is written at the end of a window", integer},
	{"REDIS_PIPELINE_WINDOW", "Weir batches waiting hits automatically, at most STORE_MAX_BATCH in one call", duration},
	{"REDIS_PIPELINE_LIMIT", "Weir batches waiting hits automatically, at most STORE_MAX_BATCH in one call", integer},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "Weir always calls the nodes of a cluster in parallel", integer},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", anyText},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "the next request reconnects", boolean},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "Weir starts immediately, and is ready when Redis has answered", duration},
	{"REDIS_STARTUP_MAX_INTERVAL", "Weir starts immediately, and is ready when Redis has answered", duration},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "Weir starts immediately, and is ready when Redis has answered", duration},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", "Weir batches waiting hits automatically, at most STORE_MAX_BATCH in one call", duration},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", "Weir batches waiting hits automatically, at most STORE_MAX_BATCH in one call", integer},
	{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "Weir always calls the nodes of a cluster in parallel", integer},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", anyText},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "each wait is drawn from 0 to its full length", number},
	{"PROMETHEUS_MAPPER_YAML", "metrics have the names of the usual mapping", anyText},
	{"GRPC_SERVER_TLS_CA_CERT", "as in envoyproxy/ratelimit, it does not verify clients; GRPC_CLIENT_TLS_CACERT does", anyText},
	{"MEMCACHE_HOST_PORT", "memcache is not supported", anyText},
	{"MEMCACHE_MAX_IDLE_CONNS", "memcache is not supported", integer},
	{"MEMCACHE_SRV", "memcache is not supported", anyText},
	{"MEMCACHE_SRV_REFRESH", "memcache is not supported", duration},
	{"MEMCACHE_TLS", "memcache is not supported", boolean},
	{"MEMCACHE_TLS_CLIENT_CERT", "memcache is not supported", anyText},
	{"MEMCACHE_TLS_CLIENT_KEY", "memcache is not supported", anyText},
	{"MEMCACHE_TLS_CACERT", "memcache is not supported", anyText},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "memcache is not supported", boolean},
}

// ignored returns the variables of [IgnoredVariables] in environ, or an error if
// envoyproxy/ratelimit would reject one.
func ignored(environ map[string]string) (found []Ineffective, err error) {
	var errs settingErrors
	for _, v := range IgnoredVariables {
		switch value := environ[v.Variable]; {
		case value == "":
		case !v.isValid(value):
			errs.add(v.Variable, "cannot read %q: remove it, because it has no effect", value)
		default:
			found = append(found, Ineffective{Setting: v.Variable, Reason: v.Why, Expected: true})
		}
	}
	return found, errors.Join(errs...)
}
