package settings

import (
	"errors"
	"strconv"
	"time"
)

// A parser parses a variable as envoyproxy/ratelimit does.
type parser func(string) error

func acceptAny(string) error { return nil }

func parseInteger(s string) error {
	_, err := strconv.Atoi(s)
	return err
}

func parseBoolean(s string) error {
	_, err := strconv.ParseBool(s)
	return err
}

func parseDuration(s string) error {
	_, err := time.ParseDuration(s)
	return err
}

func parseNumber(s string) error {
	_, err := strconv.ParseFloat(s, 64)
	return err
}

// IgnoredVariables are the variables of envoyproxy/ratelimit without an effect in Weir, with the reason. Weir validates their
// values and logs each at start.
var IgnoredVariables = []struct {
	Variable, Why string
	parse         parser
}{
	{"RUNTIME_WATCH_ROOT", "Weir notices both a replaced root and a changed file", parseBoolean},
	{"RUNTIME_IGNOREDOTFILES", "Weir always ignores names that begin with a dot, such as ..data of a ConfigMap", parseBoolean},
	{"EXPIRATION_JITTER_MAX_SECONDS", "keys expire when they have fully reset; nothing is written at the end of a window", parseInteger},
	{"REDIS_PIPELINE_WINDOW", "Weir batches waiting hits by itself, at most STORE_MAX_BATCH in one call", parseDuration},
	{"REDIS_PIPELINE_LIMIT", "Weir batches waiting hits by itself, at most STORE_MAX_BATCH in one call", parseInteger},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "Weir always calls the nodes of a cluster in parallel", parseInteger},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", acceptAny},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "the next request reconnects", parseBoolean},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "Weir starts immediately, and is ready when Redis has answered", parseDuration},
	{"REDIS_STARTUP_MAX_INTERVAL", "Weir starts immediately, and is ready when Redis has answered", parseDuration},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "Weir starts immediately, and is ready when Redis has answered", parseDuration},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", "Weir batches waiting hits by itself, at most STORE_MAX_BATCH in one call", parseDuration},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", "Weir batches waiting hits by itself, at most STORE_MAX_BATCH in one call", parseInteger},
	{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "Weir always calls the nodes of a cluster in parallel", parseInteger},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", acceptAny},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "each wait is drawn from 0 to its full length", parseNumber},
	{"PROMETHEUS_MAPPER_YAML", "metrics have the names of the usual mapping", acceptAny},
	{"GRPC_SERVER_TLS_CA_CERT", "as in envoyproxy/ratelimit, it does not verify clients; GRPC_CLIENT_TLS_CACERT does", acceptAny},
	{"MEMCACHE_HOST_PORT", "memcache is not supported", acceptAny},
	{"MEMCACHE_MAX_IDLE_CONNS", "memcache is not supported", parseInteger},
	{"MEMCACHE_SRV", "memcache is not supported", acceptAny},
	{"MEMCACHE_SRV_REFRESH", "memcache is not supported", parseDuration},
	{"MEMCACHE_TLS", "memcache is not supported", parseBoolean},
	{"MEMCACHE_TLS_CLIENT_CERT", "memcache is not supported", acceptAny},
	{"MEMCACHE_TLS_CLIENT_KEY", "memcache is not supported", acceptAny},
	{"MEMCACHE_TLS_CACERT", "memcache is not supported", acceptAny},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "memcache is not supported", parseBoolean},
}

// ignored returns the variables of [IgnoredVariables] in environ, or an error if envoyproxy/ratelimit would reject one.
func ignored(environ map[string]string) (found []Ineffective, err error) {
	var errs settingErrors
	for _, v := range IgnoredVariables {
		switch value := environ[v.Variable]; {
		case value == "":
		case v.parse(value) != nil:
			errs.add(v.Variable, "cannot read %q", value)
		default:
			found = append(found, Ineffective{Setting: v.Variable, Reason: v.Why, Expected: true})
		}
	}
	return found, errors.Join(errs...)
}
