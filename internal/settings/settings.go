// Package settings is the table of what Weir can be told: each setting a field, with its flag, its environment variable,
// its default and its meaning, from which --help is made too. The variables are those of envoyproxy/ratelimit where it
// has them, with its names and meanings.
package settings

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Serve are the settings of the server.
type Serve struct {
	Config              string `env:"CONFIG_PATH" placeholder:"FILE|DIR" group:"rules" help:"Rules: a YAML file, or a folder of them. Default: RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY."`
	RuntimeRoot         string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" group:"rules" help:"Where the folder of rules lies, if --config is not given."`
	RuntimeSubdirectory string `env:"RUNTIME_SUBDIRECTORY" group:"rules" help:"Below RUNTIME_ROOT."`
	RuntimeAppdirectory string `env:"RUNTIME_APPDIRECTORY" default:"config" group:"rules" help:"Below RUNTIME_SUBDIRECTORY."`
	RuntimeWatchRoot    bool   `env:"RUNTIME_WATCH_ROOT" default:"true" negatable:"" group:"rules" help:"Without effect: Weir sees the root replaced as well as a file in the folder changed."`

	Host      string `env:"HOST" default:"0.0.0.0" group:"listeners" help:"Address of /healthcheck and /metrics."`
	Port      uint16 `env:"PORT" default:"8080" group:"listeners" help:"Port of /healthcheck and /metrics."`
	GRPCHost  string `env:"GRPC_HOST" name:"grpc-host" default:"0.0.0.0" group:"listeners" help:"Address of the rate limit service."`
	GRPCPort  uint16 `env:"GRPC_PORT" name:"grpc-port" default:"8081" group:"listeners" help:"Port of the rate limit service."`
	DebugHost string `env:"DEBUG_HOST" default:"127.0.0.1" group:"listeners" help:"Address of the profiler."`
	DebugPort uint16 `env:"DEBUG_PORT" default:"6070" group:"listeners" help:"Port of the profiler."`

	BackendType     string        `env:"BACKEND_TYPE" placeholder:"memory|redis" group:"store" help:"Where the counters are. Default: redis if REDIS_URL is given, else memory."`
	RedisURL        string        `env:"REDIS_URL" name:"redis-url" placeholder:"URL" group:"store" help:"host:port, redis://user:password@host:port/db, or the path of a unix socket. Default: ${redis_socket}."`
	RedisSocketType string        `env:"REDIS_SOCKET_TYPE" placeholder:"tcp|unix" group:"store" help:"Default: unix if REDIS_URL begins with a slash, else tcp."`
	RedisPoolSize   int           `env:"REDIS_POOL_SIZE" default:"10" group:"store" help:"Connections to Redis."`
	CacheKeyPrefix  string        `env:"CACHE_KEY_PREFIX" group:"store" help:"Before every key in Redis."`
	StoreTimeout    time.Duration `env:"STORE_TIMEOUT" default:"15ms" group:"store" help:"The longest wait for Redis. Envoy itself waits 20 ms by default."`
	MemoryMaxKeys   int64         `env:"MEMORY_MAX_KEYS" default:"10000000" group:"store" help:"The most keys in memory."`
	MemoryMaxBytes  int64         `env:"MEMORY_MAX_BYTES" default:"4294967296" group:"store" help:"About the most bytes that keys in memory may take."`

	LogLevel  string `env:"LOG_LEVEL" default:"info" group:"process" help:"debug, info, warn or error."`
	LogFormat string `env:"LOG_FORMAT" default:"text" group:"process" help:"text or json."`

	DrainDelay  time.Duration `env:"DRAIN_DELAY" default:"2s" group:"process" help:"How long after SIGTERM the server goes on answering while it is not ready, so that proxies turn away."`
	StopTimeout time.Duration `env:"STOP_TIMEOUT" default:"10s" group:"process" help:"The longest wait, after that, for connections to end."`
}

// RedisSocket is where Redis is if it is asked for without an address, as in envoyproxy/ratelimit.
const RedisSocket = "/var/run/nutcracker/ratelimit.sock"

// The stores.
const (
	Memory = "memory"
	Redis  = "redis"
)

// Validate completes the settings, and tells everything that is wrong with them. It is called by kong.
func (s *Serve) Validate() error {
	s.BackendType, s.RedisSocketType = strings.ToLower(s.BackendType), strings.ToLower(s.RedisSocketType)
	if s.BackendType == "" {
		s.BackendType = Memory
		if s.RedisURL != "" {
			s.BackendType = Redis
		}
	}
	if s.BackendType == Redis && s.RedisURL == "" {
		s.RedisURL = RedisSocket
	}
	var errs []error
	fault := func(variable, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: "+format, append([]any{variable}, args...)...))
	}
	switch s.BackendType {
	case Memory, Redis:
	case "memcache":
		fault("BACKEND_TYPE", "memcache is not carried over: want redis, or memory for a single replica")
	default:
		fault("BACKEND_TYPE", "unknown store %q: want memory or redis", s.BackendType)
	}
	switch s.RedisSocketType {
	case "", "tcp", "unix":
	default:
		fault("REDIS_SOCKET_TYPE", "unknown socket type %q: want tcp or unix", s.RedisSocketType)
	}
	if _, err := s.Level(); err != nil {
		fault("LOG_LEVEL", "%w", err)
	}
	if f := strings.ToLower(s.LogFormat); f != "text" && f != "json" {
		fault("LOG_FORMAT", "unknown format %q: want text or json", s.LogFormat)
	}
	for variable, n := range map[string]int64{
		"STORE_TIMEOUT": int64(s.StoreTimeout), "REDIS_POOL_SIZE": int64(s.RedisPoolSize),
		"MEMORY_MAX_KEYS": s.MemoryMaxKeys, "MEMORY_MAX_BYTES": s.MemoryMaxBytes, "STOP_TIMEOUT": int64(s.StopTimeout),
	} {
		if n <= 0 {
			fault(variable, "want more than 0")
		}
	}
	if s.DrainDelay < 0 {
		fault("DRAIN_DELAY", "want 0 or more")
	}
	return errors.Join(errs...)
}

// Rules is the file or folder of rules.
func (s *Serve) Rules() string {
	if s.Config != "" {
		return s.Config
	}
	return filepath.Join(s.RuntimeRoot, s.RuntimeSubdirectory, s.RuntimeAppdirectory)
}

// Level is the level of the log. The names that envoyproxy/ratelimit knows beside zap's are taken for the nearest.
func (s *Serve) Level() (zapcore.Level, error) {
	switch strings.ToLower(s.LogLevel) {
	case "trace", "debug":
		return zapcore.DebugLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "warn", "warning":
		return zapcore.WarnLevel, nil
	case "error", "fatal", "panic":
		return zapcore.ErrorLevel, nil
	default:
		return 0, fmt.Errorf("unknown level %q: want debug, info, warn or error", s.LogLevel)
	}
}
