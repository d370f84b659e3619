package settings

import (
	"strings"
	"time"
)

// Store says where the counters are.
type Store struct {
	BackendType string `env:"BACKEND_TYPE" placeholder:"memory|redis" help:"Where the counters are. Default: redis if REDIS_URL is given, else memory."`

	RedisType         string        `env:"REDIS_TYPE" default:"SINGLE" placeholder:"SINGLE|CLUSTER|SENTINEL" help:"What is at REDIS_URL."`
	RedisURL          string        `env:"REDIS_URL" name:"redis-url" placeholder:"URL" help:"host:port, redis:// or rediss://user:password@host:port/db, or the path of a unix socket; several hosts, parted by commas, of a cluster; the master's name and the sentinels. Default: ${redis_socket}."`
	RedisSocketType   string        `env:"REDIS_SOCKET_TYPE" placeholder:"tcp|unix" help:"Default: unix if REDIS_URL begins with a slash, else tcp."`
	RedisTimeout      time.Duration `env:"REDIS_TIMEOUT" default:"10s" help:"The longest wait for a connection to Redis to be made. A request waits for STORE_TIMEOUT at most; a connection that takes longer serves those after it."`
	RedisPoolSize     int           `env:"REDIS_POOL_SIZE" default:"10" help:"The most connections to each Redis, or node of a cluster. Calls use one at a time, and two are kept."`
	RedisAuth         string        `env:"REDIS_AUTH" placeholder:"[USER:]PASSWORD" help:"Who this is to Redis."`
	RedisSentinelAuth string        `env:"REDIS_SENTINEL_AUTH" placeholder:"[USER:]PASSWORD" help:"Who this is to the sentinels."`
	RedisAuthFile     string        `env:"REDIS_AUTH_FILE" placeholder:"FILE" help:"A file with what REDIS_AUTH would be, in its place: it is read again for each new connection, so that a new password needs no restart."`
	RedisSentinelFile string        `env:"REDIS_SENTINEL_AUTH_FILE" name:"redis-sentinel-auth-file" placeholder:"FILE" help:"The same for REDIS_SENTINEL_AUTH."`
	RedisTLS          bool          `env:"REDIS_TLS" name:"redis-tls" help:"Connect to Redis by TLS."`
	RedisCert         string        `env:"REDIS_TLS_CLIENT_CERT" name:"redis-tls-client-cert" placeholder:"FILE" help:"This client's certificate."`
	RedisKey          string        `env:"REDIS_TLS_CLIENT_KEY" name:"redis-tls-client-key" placeholder:"FILE" help:"Its key."`
	RedisCA           string        `env:"REDIS_TLS_CACERT" name:"redis-tls-cacert" placeholder:"FILE" help:"The CA of Redis. Default: the system's."`
	RedisSkipHostname bool          `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" name:"redis-tls-skip-hostname-verification" help:"Take a certificate of the CA whatever its name."`
	CacheKeyPrefix    string        `env:"CACHE_KEY_PREFIX" help:"Before every key in Redis."`
	KeyHashSecret     string        `env:"KEY_HASH_SECRET" placeholder:"SECRET" help:"Hide in Redis what users sent: keys are HMAC-SHA256 under this secret, of 16 bytes or more, the same for all replicas. Another secret, and none, begins all counters anew."`
	StoreTimeout      time.Duration `env:"STORE_TIMEOUT" default:"15ms" help:"The longest wait for Redis. Envoy itself waits 20 ms by default."`
	StoreMaxBatch     int           `env:"STORE_MAX_BATCH" default:"256" help:"The most hits of several requests in one call, which holds Redis for a microsecond or two for each. Calls to a Redis are made one after another: where it is far away this, by the calls of a second, is what a replica can ask at most."`
	StoreMaxWaiting   int           `env:"STORE_MAX_WAITING" default:"16384" help:"The most hits that wait for the call under way, for each Redis. Those past it are answered UNAVAILABLE at once."`

	Replicas        int     `env:"REPLICAS" default:"1" help:"How many replicas of Weir share the limits. on_store_error: local takes this replica's share by it."`
	ReplicasDNS     string  `env:"REPLICAS_DNS" placeholder:"HOST" help:"Count the addresses of this name instead, every 10 s: that of a headless Kubernetes service of the replicas. As long as it has none, REPLICAS counts."`
	LocalFalseLimit float64 `env:"LOCAL_FALSE_LIMIT_PROBABILITY" default:"0.001" help:"The share that on_store_error: local takes is so large that a client that uses a limit whole is denied by some replica with this probability."`

	LocalCacheSize int64         `env:"LOCAL_CACHE_SIZE_IN_BYTES" name:"local-cache-size-in-bytes" default:"16777216" help:"About the most bytes that remembered denials may take: who is over a limit is denied without asking Redis. 0: every decision asks Redis. Counters in memory need no cache."`
	DenyCacheMax   time.Duration `env:"DENY_CACHE_MAX" default:"1s" help:"The longest that a denial is remembered without Redis: what another replica gives back, or Redis loses, is seen after that. After half of it, hits so denied are counted in Redis, and who goes on asking is asked for again."`

	MemoryMaxKeys  int64 `env:"MEMORY_MAX_KEYS" default:"10000000" help:"The most keys in memory."`
	MemoryMaxBytes int64 `env:"MEMORY_MAX_BYTES" default:"0" help:"About the most bytes that keys in memory may take. 0: 4 GiB, or half of the memory of the container where that is less."`

	MemorySnapshot         string        `env:"MEMORY_SNAPSHOT" placeholder:"FILE" help:"Counters in memory are saved to this file at stop and every MEMORY_SNAPSHOT_INTERVAL, and loaded from it at start: a restart forgets nothing, and a crash what came since the last save. The file belongs to one process, and holds what users sent. Default: none, and a restart forgets all."`
	MemorySnapshotInterval time.Duration `env:"MEMORY_SNAPSHOT_INTERVAL" default:"1m" help:"How often."`
}

// RedisSocket is where Redis is if it is asked for without an address, as in envoyproxy/ratelimit.
const RedisSocket = "/var/run/nutcracker/ratelimit.sock"

// The stores.
const (
	Memory = "memory"
	Redis  = "redis"
)

// leastSecret is how many bytes a secret has at least: as many as are kept of what is made under it.
const leastSecret = 16

func (s *Store) complete(f *faults) {
	s.BackendType, s.RedisSocketType = strings.ToLower(s.BackendType), strings.ToLower(s.RedisSocketType)
	s.RedisType = strings.ToUpper(s.RedisType)
	orDefault(&s.RedisType, "SINGLE")
	if s.BackendType == "" {
		s.BackendType = Memory
		if s.RedisURL != "" {
			s.BackendType = Redis
		}
	}
	if s.BackendType == Redis && s.RedisURL == "" {
		s.RedisURL = RedisSocket
	}
	switch s.BackendType {
	case Memory, Redis:
	case "memcache":
		f.tell("BACKEND_TYPE", "memcache is not carried over: want redis, or memory for a single replica")
	default:
		f.tell("BACKEND_TYPE", "unknown store %q: want memory or redis", s.BackendType)
	}
	f.oneOf("REDIS_TYPE", s.RedisType, "SINGLE", "CLUSTER", "SENTINEL")
	f.oneOf("REDIS_SOCKET_TYPE", s.RedisSocketType, "", "tcp", "unix")
	if s.RedisTLS && (s.RedisCert == "") != (s.RedisKey == "") {
		f.tell("REDIS_TLS_CLIENT_CERT", "want both it and REDIS_TLS_CLIENT_KEY, or neither")
	}
	if s.KeyHashSecret != "" && len(s.KeyHashSecret) < leastSecret {
		f.tell("KEY_HASH_SECRET", "want at least %d bytes, or who can read Redis finds it by trying", leastSecret)
	}
	f.oneOfBoth("REDIS_AUTH", s.RedisAuth, s.RedisAuthFile)
	f.oneOfBoth("REDIS_SENTINEL_AUTH", s.RedisSentinelAuth, s.RedisSentinelFile)
	positive(f, "STORE_TIMEOUT", int64(s.StoreTimeout))
	positive(f, "STORE_MAX_BATCH", s.StoreMaxBatch)
	positive(f, "STORE_MAX_WAITING", s.StoreMaxWaiting)
	if s.RedisTimeout < 0 {
		f.tell("REDIS_TIMEOUT", "want 0, which is the default, or more")
	}
	positive(f, "REDIS_POOL_SIZE", s.RedisPoolSize)
	positive(f, "REPLICAS", s.Replicas)
	if !(s.LocalFalseLimit > 0 && s.LocalFalseLimit < 1) {
		f.tell("LOCAL_FALSE_LIMIT_PROBABILITY", "want more than 0 and less than 1")
	}
	if s.LocalCacheSize < 0 {
		f.tell("LOCAL_CACHE_SIZE_IN_BYTES", "want 0, which is no cache, or more")
	}
	positive(f, "DENY_CACHE_MAX", int64(s.DenyCacheMax))
	positive(f, "MEMORY_MAX_KEYS", s.MemoryMaxKeys)
	if s.MemoryMaxBytes < 0 {
		f.tell("MEMORY_MAX_BYTES", "want 0, which is 4 GiB or half of the container's memory, or more")
	}
	positive(f, "MEMORY_SNAPSHOT_INTERVAL", int64(s.MemorySnapshotInterval))
}

// PerSecond is a second Redis, for windows of one second. Prefix, timeout and certificates are those of the first.
type PerSecond struct {
	RedisPerSecond bool          `env:"REDIS_PERSECOND" name:"redis-persecond" help:"Limits by the second are counted on a Redis of their own."`
	Type           string        `env:"REDIS_PERSECOND_TYPE" name:"redis-persecond-type" default:"SINGLE" placeholder:"SINGLE|CLUSTER|SENTINEL" help:"What is at REDIS_PERSECOND_URL."`
	URL            string        `env:"REDIS_PERSECOND_URL" name:"redis-persecond-url" default:"/var/run/nutcracker/ratelimitpersecond.sock" help:"As REDIS_URL."`
	SocketType     string        `env:"REDIS_PERSECOND_SOCKET_TYPE" name:"redis-persecond-socket-type" placeholder:"tcp|unix" help:"As REDIS_SOCKET_TYPE."`
	PoolSize       int           `env:"REDIS_PERSECOND_POOL_SIZE" name:"redis-persecond-pool-size" default:"10" help:"As REDIS_POOL_SIZE."`
	Auth           string        `env:"REDIS_PERSECOND_AUTH" name:"redis-persecond-auth" placeholder:"[USER:]PASSWORD" help:"As REDIS_AUTH."`
	SentinelAuth   string        `env:"REDIS_PERSECOND_SENTINEL_AUTH" name:"redis-persecond-sentinel-auth" placeholder:"[USER:]PASSWORD" help:"As REDIS_SENTINEL_AUTH."`
	AuthFile       string        `env:"REDIS_PERSECOND_AUTH_FILE" name:"redis-persecond-auth-file" placeholder:"FILE" help:"As REDIS_AUTH_FILE."`
	SentinelFile   string        `env:"REDIS_PERSECOND_SENTINEL_AUTH_FILE" name:"redis-persecond-sentinel-auth-file" placeholder:"FILE" help:"As REDIS_SENTINEL_AUTH_FILE."`
	Timeout        time.Duration `env:"REDIS_PERSECOND_TIMEOUT" name:"redis-persecond-timeout" default:"10s" help:"As REDIS_TIMEOUT."`
	TLS            bool          `env:"REDIS_PERSECOND_TLS" name:"redis-persecond-tls" help:"As REDIS_TLS."`
}

func (p *PerSecond) complete(f *faults, store *Store) {
	p.Type, p.SocketType = strings.ToUpper(p.Type), strings.ToLower(p.SocketType)
	orDefault(&p.Type, "SINGLE")
	f.oneOf("REDIS_PERSECOND_TYPE", p.Type, "SINGLE", "CLUSTER", "SENTINEL")
	f.oneOf("REDIS_PERSECOND_SOCKET_TYPE", p.SocketType, "", "tcp", "unix")
	f.oneOfBoth("REDIS_PERSECOND_AUTH", p.Auth, p.AuthFile)
	f.oneOfBoth("REDIS_PERSECOND_SENTINEL_AUTH", p.SentinelAuth, p.SentinelFile)
	positive(f, "REDIS_PERSECOND_POOL_SIZE", p.PoolSize)
	if p.Timeout < 0 {
		f.tell("REDIS_PERSECOND_TIMEOUT", "want 0, which is the default, or more")
	}
	if p.RedisPerSecond && store.BackendType == Memory {
		f.tell("REDIS_PERSECOND", "the counters are in memory: want BACKEND_TYPE=redis and REDIS_URL too")
	}
}
