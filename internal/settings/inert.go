package settings

import (
	"os"
	"strconv"
	"time"
)

// A kind is how envoyproxy/ratelimit reads a variable.
type kind func(string) error

func text(string) error { return nil }

func whole(s string) error {
	_, err := strconv.Atoi(s)
	return err
}

func truth(s string) error {
	_, err := strconv.ParseBool(s)
	return err
}

func span(s string) error {
	_, err := time.ParseDuration(s)
	return err
}

func number(s string) error {
	_, err := strconv.ParseFloat(s, 64)
	return err
}

// Inert are the variables of envoyproxy/ratelimit that have nothing left to set, and why. One that is set is accepted, if
// its value is one, and said at start.
var Inert = []struct {
	Variable, Why string
	kind          kind
}{
	{"RUNTIME_WATCH_ROOT", "the root being replaced is seen as well as a file in the folder being changed", truth},
	{"RUNTIME_IGNOREDOTFILES", "names that begin with a dot are always passed over, such as the ..data of a ConfigMap", truth},
	{"EXPIRATION_JITTER_MAX_SECONDS", "keys expire when they are as good as new; nothing is written at the end of a window", whole},
	{"REDIS_PIPELINE_WINDOW", "a request is one call; nothing waits for others", span},
	{"REDIS_PIPELINE_LIMIT", "a request is one call; nothing waits for others", whole},
	{"REDIS_CLUSTER_PIPELINE_PARALLELISM", "the nodes of a cluster are always asked at once", whole},
	{"REDIS_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", text},
	{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "a lost connection is made again by the next request", truth},
	{"REDIS_STARTUP_INITIAL_INTERVAL", "the server starts at once, and is ready when Redis has answered", span},
	{"REDIS_STARTUP_MAX_INTERVAL", "the server starts at once, and is ready when Redis has answered", span},
	{"REDIS_STARTUP_MAX_ELAPSED_TIME", "the server starts at once, and is ready when Redis has answered", span},
	{"REDIS_PERSECOND_PIPELINE_WINDOW", "a request is one call; nothing waits for others", span},
	{"REDIS_PERSECOND_PIPELINE_LIMIT", "a request is one call; nothing waits for others", whole},
	{"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "the nodes of a cluster are always asked at once", whole},
	{"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "a request waits for a connection, at most STORE_TIMEOUT", text},
	{"XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "waits double, and are spread over all of their length", number},
	{"PROMETHEUS_MAPPER_YAML", "metrics have the names that the usual mapping gives, without a mapping", text},
	{"GRPC_SERVER_TLS_CA_CERT", "as in envoyproxy/ratelimit, it does not check clients: GRPC_CLIENT_TLS_CACERT does", text},
	{"MEMCACHE_HOST_PORT", "memcache is not carried over", text},
	{"MEMCACHE_MAX_IDLE_CONNS", "memcache is not carried over", whole},
	{"MEMCACHE_SRV", "memcache is not carried over", text},
	{"MEMCACHE_SRV_REFRESH", "memcache is not carried over", span},
	{"MEMCACHE_TLS", "memcache is not carried over", truth},
	{"MEMCACHE_TLS_CLIENT_CERT", "memcache is not carried over", text},
	{"MEMCACHE_TLS_CLIENT_KEY", "memcache is not carried over", text},
	{"MEMCACHE_TLS_CACERT", "memcache is not carried over", text},
	{"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "memcache is not carried over", truth},
}

// InertSet returns the inert variables that are set. It returns an error if the value of one could not be read by
// envoyproxy/ratelimit either.
func InertSet() (found []Ineffective, err error) {
	var f faults
	for _, v := range Inert {
		value, set := os.LookupEnv(v.Variable)
		if !set || value == "" {
			continue
		}
		if v.kind(value) != nil {
			f.tell(v.Variable, "cannot read %q", value)
			continue
		}
		found = append(found, Ineffective{v.Variable, v.Why})
	}
	if len(f) > 0 {
		return nil, f
	}
	return found, nil
}

// An Ineffective variable is set and does nothing.
type Ineffective struct{ Variable, Reason string }

// Ineffective returns the variables that are set and do nothing.
func (s *Serve) Ineffective() (found []Ineffective) {
	for _, v := range []struct{ variable, value string }{
		{"GRPC_SERVER_TLS_CERT", s.ServerCert}, {"GRPC_SERVER_TLS_KEY", s.ServerKey}, {"GRPC_CLIENT_TLS_SAN", s.ClientSAN},
	} {
		if !s.ServerUseTLS && v.value != "" {
			found = append(found, Ineffective{v.variable, "GRPC_SERVER_USE_TLS is not set: the rate limit service uses no TLS"})
		}
	}
	return found
}

// Error tells all faults.
func (f faults) Error() string {
	text := ""
	for i, err := range f {
		if i > 0 {
			text += "\n"
		}
		text += err.Error()
	}
	return text
}
