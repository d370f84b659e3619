package settings

import (
	"strings"
	"time"
)

// Store are the settings of the store of the counters.
type Store struct {
	BackendType string `env:"BACKEND_TYPE" placeholder:"memory|redis" help:"The store of the counters: memory for one replica, redis for several. Default: redis if REDIS_URL is set, else memory."`

	Redis             RedisServer   `embed:"" prefix:"redis-" envprefix:"REDIS_" set:"server=REDIS" set:"url=" set:"no_url= Default: none, so counters are in memory. With BACKEND_TYPE=redis and no URL, Weir uses ${redis_socket}."` //nolint:staticcheck // kong reads every "set" of a tag
	RedisCert         string        `env:"REDIS_TLS_CLIENT_CERT" name:"redis-tls-client-cert" placeholder:"FILE" help:"The client certificate for Redis, in PEM. Weir reads it for each connection."`
	RedisKey          string        `env:"REDIS_TLS_CLIENT_KEY" name:"redis-tls-client-key" placeholder:"FILE" help:"The key of the client certificate, in PEM."`
	RedisCA           string        `env:"REDIS_TLS_CACERT" name:"redis-tls-cacert" placeholder:"FILE" help:"The CA that signs Redis' certificate, in PEM. Weir reads it again when the file changes. Default: the CAs of the system."`
	RedisSkipHostname bool          `env:"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION" name:"redis-tls-skip-hostname-verification" help:"Accept any name in Redis' certificate. The CA is still verified."`
	CacheKeyPrefix    string        `env:"CACHE_KEY_PREFIX" help:"A prefix of every key in Redis. Set it if several installations with different rules share a Redis."`
	KeyHashSecret     string        `env:"KEY_HASH_SECRET" placeholder:"SECRET" help:"A secret of at least 16 bytes, the same for all replicas. Redis keys then contain an HMAC-SHA256 under this secret instead of user data. A new secret resets all counters."`
	StoreTimeout      time.Duration `env:"STORE_TIMEOUT" default:"15ms" help:"The longest wait for one call to Redis, after which on_store_error decides. Set the timeout of Envoy's filter to more than six times this value, such as 100 ms for the default, because one request may need several calls. With leases, set at most 5s."`
	StoreMaxBatch     int           `env:"STORE_MAX_BATCH" default:"256" help:"The maximum number of operations in one call to Redis. Each limit of a request is one operation. Calls run one at a time, so a replica decides at most this many operations in each round trip. An operation takes Redis 1 to 2 µs."`
	StoreMaxWaiting   int           `env:"STORE_MAX_WAITING" default:"16384" help:"The maximum number of operations that wait for the call in flight, for each Redis. Further operations fail immediately, and on_store_error decides them."`

	Replicas        *int    `env:"REPLICAS" placeholder:"NUMBER" help:"The number of replicas that share the limits. While Redis is unreachable, on_store_error: local gives each replica its share. Default: 1."` // nil: not given
	ReplicasDNS     string  `env:"REPLICAS_DNS" placeholder:"HOST" help:"A DNS name with one address for each replica, such as a headless Kubernetes service. Weir counts its addresses every 10 s. It uses REPLICAS until the first answer, and the last number if a lookup fails."`
	LocalFalseLimit float64 `env:"LOCAL_FALSE_LIMIT_PROBABILITY" default:"0.001" help:"The highest accepted probability, above 0 and below 1, that on_store_error: local denies a client that stays just within its limit. A smaller value makes each share larger."`

	LocalCacheSize int64         `env:"LOCAL_CACHE_SIZE_IN_BYTES" name:"local-cache-size-in-bytes" default:"16777216" help:"The size, in bytes, of the deny cache, which denies keys over their limits without a call to Redis. Limits with leases, and a few others, always need the call: see docs/design.md. 0 turns the cache off."`
	DenyCacheMax   time.Duration `env:"DENY_CACHE_MAX" default:"1s" help:"The longest time that a denial stays in the deny cache, and so the longest time until a refund by another replica takes effect. After half of it, Weir writes denied hits to Redis and rechecks keys that are still requested."`

	MemoryMaxKeys  int64 `env:"MEMORY_MAX_KEYS" default:"10000000" help:"The maximum number of keys in memory. Beyond it, Weir evicts keys within their limits. If it finds none, operations on new keys fail, and on_store_error decides them."`
	MemoryMaxBytes int64 `env:"MEMORY_MAX_BYTES" default:"0" help:"The approximate memory for keys, in bytes. 0 means 4 GiB, or half of the container's memory if that is less."`

	MemorySnapshot         string        `env:"MEMORY_SNAPSHOT" placeholder:"FILE" help:"A file for the counters in memory, saved at shutdown and every MEMORY_SNAPSHOT_INTERVAL, and loaded at startup. It contains user data, and each process needs its own file. Default: none, so a restart resets all limits."`
	MemorySnapshotInterval time.Duration `env:"MEMORY_SNAPSHOT_INTERVAL" default:"1m" help:"The time between two saves, at least 10ms. A crash loses the counts since the last one."`
}

// RedisSocket is the address of Redis if BACKEND_TYPE is redis and REDIS_URL is empty, as in
// envoyproxy/ratelimit.
const RedisSocket = "/var/run/nutcracker/ratelimit.sock"

// The stores.
const (
	Memory = "memory"
	Redis  = "redis"
)

// minSecretBytes is the minimum length of a secret. It equals the length of the HMAC in a key.
const minSecretBytes = 16

func (s *Store) complete(errs *settingErrors) {
	backend := s.BackendType
	s.BackendType = strings.ToLower(backend)
	if s.BackendType == "" {
		s.BackendType = Memory
		if s.Redis.URL != "" {
			s.BackendType = Redis
		}
	}
	if s.BackendType == Redis && s.Redis.URL == "" {
		s.Redis.URL = RedisSocket
	}
	switch s.BackendType {
	case Memory, Redis:
	case "memcache":
		errs.add("BACKEND_TYPE", "memcache is not supported: want redis, or memory for a single replica")
	default:
		errs.add("BACKEND_TYPE", "unknown store %q: want memory or redis", backend)
	}
	s.Redis.complete(errs, "REDIS")
	if s.Redis.TLS && (s.RedisCert == "") != (s.RedisKey == "") {
		errs.add("REDIS_TLS_CLIENT_CERT", "the certificate or its key is missing: set REDIS_TLS_CLIENT_CERT and REDIS_TLS_CLIENT_KEY, or neither")
	}
	if s.KeyHashSecret != "" && len(s.KeyHashSecret) < minSecretBytes {
		errs.add("KEY_HASH_SECRET", "a client that reads Redis can guess a secret of %d bytes: want at least %d", len(s.KeyHashSecret), minSecretBytes)
	}
	positive(errs, "STORE_TIMEOUT", s.StoreTimeout)
	positive(errs, "STORE_MAX_BATCH", s.StoreMaxBatch)
	positive(errs, "STORE_MAX_WAITING", s.StoreMaxWaiting)
	positive(errs, "REPLICAS", s.ReplicaCount())
	if !(s.LocalFalseLimit > 0 && s.LocalFalseLimit < 1) {
		errs.require("LOCAL_FALSE_LIMIT_PROBABILITY", s.LocalFalseLimit, "be above 0 and below 1")
	}
	if s.LocalCacheSize < 0 {
		errs.require("LOCAL_CACHE_SIZE_IN_BYTES", s.LocalCacheSize, "be at least 0 (0: no cache)")
	}
	positive(errs, "DENY_CACHE_MAX", s.DenyCacheMax)
	positive(errs, "MEMORY_MAX_KEYS", s.MemoryMaxKeys)
	if s.MemoryMaxBytes < 0 {
		errs.require("MEMORY_MAX_BYTES", s.MemoryMaxBytes, "be at least 0 (0: 4 GiB, or half of the container's memory)")
	}
	errs.interval("MEMORY_SNAPSHOT_INTERVAL", s.MemorySnapshotInterval)
}

// ReplicaCount returns REPLICAS or its default.
func (s *Store) ReplicaCount() int {
	if s.Replicas == nil {
		return 1
	}
	return *s.Replicas
}

// PerSecond is a second Redis, for windows of one second. Prefix, timeout and certificates are
// those of the first.
type PerSecond struct {
	UsePerSecondRedis bool        `env:"REDIS_PERSECOND" name:"redis-persecond" help:"Count limits with a window of one second on a second Redis. Limits with a penalty or a reservation stay on the first, and so do all limits of a rule that also has other windows."`
	PerSecondRedis    RedisServer `embed:"" prefix:"redis-persecond-" envprefix:"REDIS_PERSECOND_" set:"server=REDIS_PERSECOND" set:"url=/var/run/nutcracker/ratelimitpersecond.sock" set:"no_url="` //nolint:staticcheck // kong reads every "set" of a tag
}

// A RedisServer is one Redis, a Redis Cluster or a Redis behind Sentinels, with the settings to
// connect to it.
type RedisServer struct {
	Type         string        `env:"TYPE" default:"SINGLE" placeholder:"SINGLE|CLUSTER|SENTINEL" help:"The kind of ${server}_URL: one Redis, a Redis Cluster, or Sentinels."`
	URL          string        `env:"URL" default:"${url}" placeholder:"URL" help:"For one Redis, write host:port, redis:// or rediss://user:password@host:port/db, or the path of a unix socket. For a cluster, write several hosts separated by commas. For Sentinels, write the master's name, then their hosts.${no_url}"`
	SocketType   string        `env:"SOCKET_TYPE" placeholder:"tcp|unix" help:"The network of ${server}_URL. Default: unix if ${server}_URL begins with a slash, else tcp."`
	Timeout      time.Duration `env:"TIMEOUT" default:"10s" help:"The longest time to connect to Redis. A call fails after STORE_TIMEOUT, even if its connection is not yet open. The connection then serves later calls. 0 means the default."`
	PoolSize     int           `env:"POOL_SIZE" default:"10" help:"The maximum number of connections to each Redis or cluster node. At most two stay open while idle. Decisions use one at a time, and redirected commands and the admin API use the others. With ADMIN_ADDR, one more connection receives resets."`
	Auth         string        `env:"AUTH" placeholder:"[USER:]PASSWORD" help:"The password for Redis, with a user if Redis has ACLs."`
	SentinelAuth string        `env:"SENTINEL_AUTH" placeholder:"[USER:]PASSWORD" help:"The password for the Sentinels, with a user if they have ACLs."`
	AuthFile     string        `env:"AUTH_FILE" placeholder:"FILE" help:"A file with the value of ${server}_AUTH. Weir reads it for each connection, so a new password needs no restart."`
	SentinelFile string        `env:"SENTINEL_AUTH_FILE" name:"sentinel-auth-file" placeholder:"FILE" help:"A file with the value of ${server}_SENTINEL_AUTH, read for each connection."`
	TLS          bool          `env:"TLS" help:"Connect to Redis with TLS."`
}

// maxPoolSize is more connections than Redis or a network address takes. The pool reserves memory
// for all of them.
const maxPoolSize = 65_535

// complete completes the settings whose variables begin with prefix.
func (r *RedisServer) complete(errs *settingErrors, prefix string) {
	setDefault(&r.Type, "SINGLE")
	errs.oneOf(prefix+"_TYPE", &r.Type, "SINGLE", "CLUSTER", "SENTINEL")
	if r.SocketType != "" {
		errs.oneOf(prefix+"_SOCKET_TYPE", &r.SocketType, "tcp", "unix")
	}
	errs.exclusive(prefix+"_AUTH", r.Auth, r.AuthFile)
	errs.exclusive(prefix+"_SENTINEL_AUTH", r.SentinelAuth, r.SentinelFile)
	setDefault(&r.Timeout, 10*time.Second)
	if r.Timeout < 0 {
		errs.require(prefix+"_TIMEOUT", r.Timeout, "be at least 0 (0: the default)")
	}
	if r.PoolSize < 1 || r.PoolSize > maxPoolSize {
		errs.require(prefix+"_POOL_SIZE", r.PoolSize, "be from 1 to %d", maxPoolSize)
	}
}

func (p *PerSecond) complete(errs *settingErrors, store *Store) {
	p.PerSecondRedis.complete(errs, "REDIS_PERSECOND")
	if p.UsePerSecondRedis && store.BackendType == Memory {
		errs.add("REDIS_PERSECOND", "the counters are in memory: set BACKEND_TYPE=redis and REDIS_URL too")
	}
}
