package settings

import (
	_ "embed"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/internal/must"
)

// defaults returns valid settings.
func defaults() Serve {
	return Serve{
		Rules:       Rules{ConfigType: FromFiles, RuntimeRoot: "/data", RuntimeSubdirectory: "ratelimit", RuntimeAppdirectory: "config"},
		XDS:         XDS{ConnectRetry: time.Second, BackoffMax: time.Minute},
		Listeners:   Listeners{MaxConnectionAge: time.Hour, MaxConnectionAgeGrace: time.Hour},
		Store:       Store{Redis: RedisServer{Type: "SINGLE", Timeout: time.Second, PoolSize: 1}, StoreTimeout: time.Second, StoreMaxBatch: 1, StoreMaxWaiting: 1, MemoryMaxKeys: 1, MemoryMaxBytes: 1, MemorySnapshotInterval: time.Minute, DenyCacheMax: time.Second, LocalFalseLimit: .001},
		PerSecond:   PerSecond{PerSecondRedis: RedisServer{Type: "SINGLE", PoolSize: 1, Timeout: time.Second}},
		Responses:   Responses{NearLimitRatio: .8, LimitHeader: "a", RemainingHeader: "b", ResetHeader: "c"},
		Stats:       Stats{StatsdHost: "localhost", StatsdPort: 8125, StatsdProtocol: "tcp", FlushInterval: time.Second, PrometheusPath: "/metrics"},
		Tracing:     Tracing{TracingExporterProtocol: "http", TracingSamplingRate: 1},
		Observation: Observation{DenialLogPerSecond: 1, RecordSample: 1, RecordPerSecond: 1, RecordFileBytes: 1 << 20, RecordMaxBytes: 2 << 20},
		Process:     Process{LogLevel: "info", LogFormat: "text", StopTimeout: time.Second},
	}
}

func TestDefaultStoreIsMemoryWithoutRedisURL(t *testing.T) {
	for _, c := range []struct{ backend, url, wantBackend, wantURL string }{
		{"", "", "memory", ""},
		{"", "localhost:6379", "redis", "localhost:6379"},
		{"redis", "", "redis", RedisSocket},
		{"REDIS", "", "redis", RedisSocket},
		{"Redis", "localhost:6379", "redis", "localhost:6379"},
		{"memory", "localhost:6379", "memory", "localhost:6379"},
	} {
		s := defaults()
		s.BackendType, s.Redis.URL = c.backend, c.url
		if err := s.Validate(); err != nil || s.BackendType != c.wantBackend || s.Redis.URL != c.wantURL {
			t.Errorf("BACKEND_TYPE=%q REDIS_URL=%q: %q %q, %v", c.backend, c.url, s.BackendType, s.Redis.URL, err)
		}
	}
}

func TestMaxInFlightIsBounded(t *testing.T) {
	s := defaults()
	if s.MaxInFlight = 1 << 30; s.Validate() != nil {
		t.Errorf("MAX_IN_FLIGHT %d: got error %v, want none", s.MaxInFlight, s.Validate())
	}
	if s.MaxInFlight = math.MaxInt; s.Validate() == nil {
		t.Errorf("%d is accepted", s.MaxInFlight)
	}
}

func TestErrorsNameTheVariable(t *testing.T) {
	for variable, spoil := range map[string]func(*Serve){
		"RECORD_SAMPLE":      func(s *Serve) { s.RecordSample = math.NaN() },
		"RECORD_PER_SECOND":  func(s *Serve) { s.RecordPerSecond = 0 },
		"RECORD_FILE_BYTES":  func(s *Serve) { s.RecordFileBytes = 1 },
		"RECORD_MAX_BYTES":   func(s *Serve) { s.RecordMaxBytes = s.RecordFileBytes },
		"RECORD_COMPRESSION": func(s *Serve) { s.RecordCompression = "gzip" },
		"CONFIG_TYPE":        func(s *Serve) { s.ConfigType = "ZOOKEEPER" },
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL": func(s *Serve) { s.ConfigType, s.BackoffInitial, s.ConnectRetry = FromXDS, 0, time.Millisecond },
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL":           func(s *Serve) { s.ConfigType, s.BackoffInitial = FromXDS, time.Nanosecond },
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL":               func(s *Serve) { s.ConfigType, s.BackoffMax = FromXDS, -1 },
		"XDS_CLIENT_BACKOFF_MAX_INTERVAL ":              func(s *Serve) { s.ConfigType, s.BackoffMax = FromXDS, time.Nanosecond },
		"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES":              func(s *Serve) { s.ConfigType, s.MaxMessageSize = FromXDS, -1 },
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT":               func(s *Serve) { s.ConfigType, s.XDS.ClientCert = FromXDS, "cert" },
		"CONFIG_GRPC_XDS_NODE_METADATA":                 func(s *Serve) { s.ConfigType, s.NodeMetadata = FromXDS, "a=b,c" },
		"MAX_IN_FLIGHT":                                 func(s *Serve) { s.MaxInFlight = -1 },
		"GRPC_MAX_CONNECTION_AGE":                       func(s *Serve) { s.MaxConnectionAge = -1 },
		"GRPC_SERVER_USE_TLS":                           func(s *Serve) { s.ServerUseTLS = true },
		"GRPC_CLIENT_TLS_CACERT":                        func(s *Serve) { s.ClientCA = "ca" },
		"GRPC_CLIENT_TLS_SAN":                           func(s *Serve) { s.ServerUseTLS, s.ServerCert, s.ServerKey, s.ClientSAN = true, "c", "k", "envoy" },
		"BACKEND_TYPE":                                  func(s *Serve) { s.BackendType = "disk" },
		"REDIS_TYPE":                                    func(s *Serve) { s.Redis.Type = "RING" },
		"REDIS_SOCKET_TYPE":                             func(s *Serve) { s.Redis.SocketType = "carrier pigeon" },
		"REDIS_TLS_CLIENT_CERT":                         func(s *Serve) { s.Redis.TLS, s.RedisCert = true, "cert" },
		"REDIS_TLS_CACERT":                              func(s *Serve) { s.BackendType, s.RedisCA = Redis, "ca" },
		"REDIS_TLS_CLIENT_KEY":                          func(s *Serve) { s.BackendType, s.Redis.URL, s.RedisKey = Redis, "redis://h:1", "key" },
		"STORE_TIMEOUT":                                 func(s *Serve) { s.StoreTimeout = 0 },
		"STORE_MAX_BATCH":                               func(s *Serve) { s.StoreMaxBatch = 0 },
		"STORE_MAX_WAITING":                             func(s *Serve) { s.StoreMaxWaiting = -1 },
		"REDIS_AUTH_FILE":                               func(s *Serve) { s.Redis.Auth, s.Redis.AuthFile = "s3cret", "file" },
		"REDIS_SENTINEL_AUTH_FILE":                      func(s *Serve) { s.Redis.SentinelAuth, s.Redis.SentinelFile = "s3cret", "file" },
		"REDIS_PERSECOND_AUTH_FILE":                     func(s *Serve) { s.PerSecondRedis.Auth, s.PerSecondRedis.AuthFile = "s3cret", "file" },
		"REDIS_PERSECOND_SENTINEL_AUTH_FILE":            func(s *Serve) { s.PerSecondRedis.SentinelAuth, s.PerSecondRedis.SentinelFile = "s3cret", "file" },
		"KEY_HASH_SECRET":                               func(s *Serve) { s.KeyHashSecret = "s3cret" },
		"REDIS_TIMEOUT":                                 func(s *Serve) { s.Redis.Timeout = -1 },
		"REDIS_PERSECOND_TIMEOUT":                       func(s *Serve) { s.PerSecondRedis.Timeout = -1 },
		"REDIS_POOL_SIZE":                               func(s *Serve) { s.Redis.PoolSize = 0 },
		"REDIS_POOL_SIZE ":                              func(s *Serve) { s.Redis.PoolSize = 65_536 },
		"REDIS_PERSECOND_POOL_SIZE ":                    func(s *Serve) { s.PerSecondRedis.PoolSize = math.MaxInt },
		"MEMORY_MAX_KEYS":                               func(s *Serve) { s.MemoryMaxKeys = 0 },
		"MEMORY_MAX_BYTES":                              func(s *Serve) { s.MemoryMaxBytes = -1 },
		"MEMORY_SNAPSHOT_INTERVAL":                      func(s *Serve) { s.MemorySnapshotInterval = 0 },
		"MEMORY_SNAPSHOT_INTERVAL ":                     func(s *Serve) { s.MemorySnapshotInterval = 10*time.Millisecond - 1 },
		"LOCAL_CACHE_SIZE_IN_BYTES":                     func(s *Serve) { s.LocalCacheSize = -1 },
		"DENY_CACHE_MAX":                                func(s *Serve) { s.DenyCacheMax = 0 },
		"REPLICAS":                                      func(s *Serve) { s.Replicas = new(int) },
		"LOCAL_FALSE_LIMIT_PROBABILITY":                 func(s *Serve) { s.LocalFalseLimit = math.NaN() },
		"LOCAL_FALSE_LIMIT_PROBABILITY ":                func(s *Serve) { s.LocalFalseLimit = 0 },
		"LOCAL_FALSE_LIMIT_PROBABILITY  ":               func(s *Serve) { s.LocalFalseLimit = 1 },
		"REDIS_PERSECOND":                               func(s *Serve) { s.UsePerSecondRedis = true },
		"REDIS_PERSECOND_TYPE":                          func(s *Serve) { s.PerSecondRedis.Type = "RING" },
		"REDIS_PERSECOND_SOCKET_TYPE":                   func(s *Serve) { s.PerSecondRedis.SocketType = "x" },
		"REDIS_PERSECOND_POOL_SIZE":                     func(s *Serve) { s.PerSecondRedis.PoolSize = 0 },
		"NEAR_LIMIT_RATIO":                              func(s *Serve) { s.NearLimitRatio = 1.5 },
		"LIMIT_RESET_HEADER":                            func(s *Serve) { s.ResponseHeaders, s.ResetHeader = true, "" },
		"LIMIT_LIMIT_HEADER":                            func(s *Serve) { s.ResponseHeaders, s.LimitHeader = true, "X-Limit " },
		"LIMIT_REMAINING_HEADER":                        func(s *Serve) { s.ResponseHeaders, s.RemainingHeader = true, ":status" },
		"LIMIT_REMAINING_HEADER ":                       func(s *Serve) { s.ResponseHeaders, s.RemainingHeader = true, "Content-Length" },
		"RESPONSE_HEADERS_STANDARD":                     func(s *Serve) { s.ResponseHeadersStandard = "draft-03" },
		"RETRY_AFTER_JITTER":                            func(s *Serve) { s.RetryAfterJitter = "0.1" },
		"RETRY_AFTER_JITTER ":                           func(s *Serve) { s.RetryAfterJitter = "101%" },
		"RETRY_AFTER_JITTER  ":                          func(s *Serve) { s.RetryAfterJitter = "NaN%" },
		"RESPONSE_HEADER_DENIED_BY":                     func(s *Serve) { s.ResponseHeaderDeniedBy = "x denied" },
		"RESPONSE_HEADER_DENIED_BY ":                    func(s *Serve) { s.ResponseHeaderDeniedBy = "Retry-After" },
		"RECEIPT_HEADER":                                func(s *Serve) { s.ReceiptHeader = "x-receipt" },
		"RECEIPT_HEADER ":                               func(s *Serve) { s.ReceiptHeader, s.ReceiptKeysFile = ":status", "keys" },
		"RECEIPT_HEADER  ":                              func(s *Serve) { s.ReceiptHeader, s.ResponseHeaderDeniedBy, s.ReceiptKeysFile = "X-A", "x-a", "keys" },
		"STATSD_PROTOCOL":                               func(s *Serve) { s.StatsdProtocol = "sctp" },
		"STATS_FLUSH_INTERVAL":                          func(s *Serve) { s.FlushInterval = 0 },
		"STATS_FLUSH_INTERVAL ":                         func(s *Serve) { s.FlushInterval = time.Nanosecond },
		"USE_STATSD":                                    func(s *Serve) { s.UseStatsd, s.UseDogStatsd = true, true },
		"PROMETHEUS_PATH":                               func(s *Serve) { s.PrometheusPath = "metrics" },
		"PROMETHEUS_ADDR":                               func(s *Serve) { s.UsePrometheus, s.PrometheusAddr = true, "9090" },
		"PROMETHEUS_ADDR ":                              func(s *Serve) { s.UsePrometheus, s.PrometheusAddr = true, ":99999" },
		"NEAR_LIMIT_RATIO ":                             func(s *Serve) { s.NearLimitRatio = float32(math.NaN()) },
		"TRACING_SAMPLING_RATE":                         func(s *Serve) { s.TracingSamplingRate = math.NaN() },
		"EXTRA_TAGS":                                    func(s *Serve) { s.ExtraTags = "a" },
		"TRACING_EXPORTER_PROTOCOL":                     func(s *Serve) { s.TracingExporterProtocol = "smtp" },
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS":     func(s *Serve) { s.ConfigType, s.AdditionalHeaders = FromXDS, "a:b,s3cret" },
		"DENIAL_LOG":                                    func(s *Serve) { s.DenialLog = math.NaN() },
		"DENIAL_LOG ":                                   func(s *Serve) { s.DenialLog = 1.5 },
		"DENIAL_LOG_PER_SECOND":                         func(s *Serve) { s.DenialLogPerSecond = 0 },
		"TOP_KEYS":                                      func(s *Serve) { n := 100_001; s.TopKeys = &n },
		"TOP_KEYS ":                                     func(s *Serve) { n := -1; s.TopKeys = &n },
		"LOG_LEVEL":                                     func(s *Serve) { s.LogLevel = "loud" },
		"LOG_FORMAT":                                    func(s *Serve) { s.LogFormat = "xml" },
		"STOP_TIMEOUT":                                  func(s *Serve) { s.StopTimeout = 0 },
		"DRAIN_DELAY":                                   func(s *Serve) { s.DrainDelay = -1 },
		"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": func(s *Serve) {
			s.StopCacheKeyIncrementWhenOverlimit, s.UsePerSecondRedis, s.BackendType = true, true, Redis
		},
	} {
		s := defaults()
		if err := s.Validate(); err != nil {
			t.Fatalf("before: %v", err)
		}
		spoil(&s)
		if err := s.Validate(); err == nil || !named(err, strings.TrimSpace(variable)) ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "s3cret") ||
			strings.HasPrefix(err.Error(), strings.TrimSpace(variable)+" must ") && !strings.Contains(err.Error(), ", not ") {
			t.Errorf("%s: got error %v, want one line that names the variable and, after must, its value, without secrets", variable, err)
		}
	}
}

// named reports whether an error begins with the name of a variable.
func named(err error, variable string) bool {
	return strings.HasPrefix(err.Error(), variable+": ") || strings.HasPrefix(err.Error(), variable+" must ")
}

// With a value that automemlimit cannot use, Weir would run without a memory limit.
func TestMemoryLimitIsAFraction(t *testing.T) {
	for value, want := range map[string]bool{
		"": true, "off": true, "0.8": true, "1": true, "90%": false, "1.5": false, "0": false, "-1": false, "NaN": false, "OFF": false,
	} {
		t.Setenv("AUTOMEMLIMIT", value)
		s := defaults()
		err := s.Validate()
		if text := "AUTOMEMLIMIT must be off, or above 0 and at most 1, not " + value; (err == nil) != want || err != nil && err.Error() != text {
			t.Errorf("%q: error %v, want it accepted: %v", value, err, want)
		}
	}
}

// Charts render unset variables as empty ones. The libraries of envoyproxy/ratelimit clamp values
// that are out of range.
func TestEmptyAndOutOfRangeValuesOfRatelimitAreAccepted(t *testing.T) {
	s := defaults()
	s.ConfigType, s.Redis.Type, s.PerSecondRedis.Type, s.LogLevel, s.LogFormat = "", "", "", "", ""
	s.StatsdProtocol, s.PrometheusPath, s.TracingExporterProtocol = "", "", ""
	s.LimitHeader, s.RemainingHeader, s.ResetHeader = "", "", ""
	s.DebugHost, s.PrometheusAddr = "", ""
	s.MaxConnectionAge, s.Redis.Timeout, s.TracingSamplingRate, s.ClientSAN = 0, 0, 100, "envoy"
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if found := ineffective(t, &s); len(found) != 1 || found[0].Setting != "GRPC_CLIENT_TLS_SAN" {
		t.Errorf("%+v, want GRPC_CLIENT_TLS_SAN alone", found)
	}
	if s.ConfigType != FromFiles || s.TracingSamplingRate != 1 || s.PrometheusPath != "/metrics" || s.DebugHost != "127.0.0.1" ||
		s.PrometheusAddr != ":9090" || s.Redis.Timeout != 10*time.Second || s.ServerURL != "localhost:18000" {
		t.Errorf("%+v, want the defaults for empty variables", s)
	}
	s = defaults()
	s.ConfigType, s.ConnectRetry, s.BackoffMax = FromXDS, 3*time.Second, 2*time.Second
	if err := s.Validate(); err != nil || s.BackoffInitial != 2*time.Second {
		t.Errorf("a first wait of 3 s and a longest of 2 s: %v, %v, want %v", s.BackoffInitial, err, 2*time.Second)
	}
}

func TestJitterIsAPartOfTheWait(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "0%": 0, "10%": .1, "2.5%": .025, "100%": 1} {
		s := defaults()
		s.ResponseHeadersStandard, s.RetryAfterJitter, s.ReceiptHeader, s.ReceiptKeysFile = "draft-11", text, "X-Receipt", "keys"
		err := s.Validate()
		if got := s.Jitter; err != nil || got != want || s.ReceiptHeader != "x-receipt" || len(ineffective(t, &s)) > 0 {
			t.Errorf("%q: got jitter %v, error %v, header %q, ineffective %+v, want %v, x-receipt and none",
				text, got, err, s.ReceiptHeader, ineffective(t, &s), want)
		}
	}
	s := defaults()
	s.RetryAfterJitter, s.ReceiptKeysFile = "10%", "keys"
	if found := ineffective(t, &s); len(found) != 2 {
		t.Errorf("without their headers: %+v", found)
	}
}

// envoyproxy/ratelimit sends to statsd by default, so its manifests set only the address.
func TestStatsdAddressWithoutStatsdHasNoEffect(t *testing.T) {
	for _, c := range []struct {
		change func(*Serve)
		want   int
	}{
		{func(*Serve) {}, 0},
		{func(s *Serve) { s.StatsdHost = "" }, 0},
		{func(s *Serve) { s.StatsdHost, s.StatsdPort = "statsd", 9125 }, 2},
		{func(s *Serve) { s.StatsdPort, s.UseStatsd = 9125, true }, 0},
		{func(s *Serve) { s.StatsdHost, s.UseDogStatsd = "statsd", true }, 0},
		{func(s *Serve) { s.StatsdHost, s.DisableStats = "statsd", true }, 0},
	} {
		s := defaults()
		c.change(&s)
		if found := ineffective(t, &s); len(found) != c.want {
			t.Errorf("%+v: %+v, want %d", s.Stats, found, c.want)
		}
	}
}

// The credentials for the control plane would not be used, and its headers would be readable.
func TestTLSFilesWithoutTLSHaveNoEffect(t *testing.T) {
	s := defaults()
	s.ConfigType = FromXDS
	s.XDS.ClientCert, s.XDS.ClientKey, s.XDS.ServerCA, s.XDS.ServerSAN = "cert", "key", "ca", "name"
	if found := ineffective(t, &s); len(found) != 4 || !strings.Contains(found[0].Reason, "plaintext") {
		t.Errorf("%+v, want the four settings", found)
	}
	s.XDS.UseTLS = true
	if found := ineffective(t, &s); len(found) > 0 {
		t.Errorf("with TLS: %+v, want none", found)
	}
}

func TestSettingsOfAnotherStoreOrSourceHaveNoEffect(t *testing.T) {
	for _, c := range []struct {
		change func(*Serve)
		want   string // empty: none
	}{
		{func(s *Serve) { s.BackendType, s.Redis.URL = Memory, "redis:6379" }, "REDIS_URL"},
		{func(s *Serve) { s.Redis.URL = "redis:6379" }, ""},
		{func(s *Serve) { s.BackendType, s.Redis.URL = Redis, "redis:6379" }, ""},
		{func(s *Serve) { s.BackendType = Memory }, ""},
		{func(s *Serve) { s.ConfigType, s.Config = FromXDS, "rules.yaml" }, "CONFIG_PATH"},
		{func(s *Serve) { s.ConfigType, s.RulesFile = FromXDS, "received.json" }, ""},
		{func(s *Serve) { s.Config, s.RulesFile = "rules.yaml", "received.json" }, "CONFIG_GRPC_XDS_RULES_FILE"},
	} {
		s := defaults()
		c.change(&s)
		must.Succeed(t, s.Validate())
		found := ineffective(t, &s)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || found[0].Setting != c.want) {
			t.Errorf("%+v, want %q alone", found, c.want)
		}
	}
}

// ineffective returns the variables of environ and the settings that are set without effect.
func ineffective(t *testing.T, s *Serve, environ ...string) []Ineffective {
	t.Helper()
	found, err := s.Ineffective(environ)
	if err != nil {
		t.Error(err)
	}
	return found
}

func TestAllErrorsAreReported(t *testing.T) {
	s := defaults()
	s.BackendType, s.LogLevel, s.StoreTimeout = "memcache", "loud", 0
	err := s.Validate()
	for _, want := range []string{"BACKEND_TYPE: memcache is not supported", "LOG_LEVEL: ", "STORE_TIMEOUT must "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

func TestRulesPathFollowsSettings(t *testing.T) {
	s := defaults()
	if got := s.Path(); got != "/data/ratelimit/config" {
		t.Errorf("path %q, want /data/ratelimit/config", got)
	}
	s.Config = "rules.yaml"
	if got := s.Path(); got != "rules.yaml" {
		t.Errorf("with --config: %q, want \"rules.yaml\"", got)
	}
}

func TestLogLevelsOfRatelimitAreAccepted(t *testing.T) {
	for name, want := range map[string]zapcore.Level{
		"debug": zapcore.DebugLevel, "trace": zapcore.DebugLevel, "INFO": zapcore.InfoLevel,
		"warn": zapcore.WarnLevel, "Warning": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
		"fatal": zapcore.ErrorLevel, "panic": zapcore.ErrorLevel,
	} {
		s := defaults()
		s.LogLevel = name
		if err := s.Validate(); err != nil || s.Level != want {
			t.Errorf("%s: %v, %v, want %v", name, s.Level, err, want)
		}
	}
}

// ratelimit are the variables of envoyproxy/ratelimit (settings.go), without those of memcache and
// of its libraries. docs/settings.md marks all others.
//
//go:embed testdata/ratelimit.txt
var ratelimit string

func TestEveryVariableOfRatelimitIsASettingOrIgnored(t *testing.T) {
	taken := variables()
	for _, v := range IgnoredVariables {
		if v.Why == "" {
			t.Errorf("%s: no reason", v.Variable)
		}
	}
	for _, v := range strings.Fields(ratelimit) {
		if !slices.Contains(taken, v) {
			t.Errorf("%s is neither a setting nor ineffective", v)
		}
	}
	seen := map[string]bool{}
	for _, v := range taken {
		if v == "" || seen[v] {
			t.Errorf("%q is empty, or there twice: a setting is not ineffective", v)
		}
		seen[v] = true
	}
}

// A setting of a feature that is off has no effect, and has one once the feature is on.
func TestSettingsOfAFeatureThatIsOffAreReported(t *testing.T) {
	for setting, c := range map[string]struct{ set, enable func(*Serve) }{
		"GRPC_SERVER_TLS_CERT": {func(s *Serve) { s.ServerCert = "f" }, func(s *Serve) { s.ServerUseTLS = true }},
		"GRPC_SERVER_TLS_KEY":  {func(s *Serve) { s.ServerKey = "f" }, func(s *Serve) { s.ServerUseTLS = true }},
		"GRPC_CLIENT_TLS_SAN":  {func(s *Serve) { s.ClientSAN = "envoy" }, func(s *Serve) { s.ServerUseTLS = true }},
		"MEMORY_SNAPSHOT":      {func(s *Serve) { s.MemorySnapshot, s.BackendType = "f", Redis }, func(s *Serve) { s.BackendType = Memory }},
		"RECORD_SECRET_FILE":   {func(s *Serve) { s.RecordSecretFile = "f" }, func(s *Serve) { s.RecordPath = "d" }},
		"RETRY_AFTER_JITTER":   {func(s *Serve) { s.RetryAfterJitter = "10%" }, func(s *Serve) { s.ResponseHeadersStandard = "draft-11" }},
		"RECEIPT_KEYS_FILE":    {func(s *Serve) { s.ReceiptKeysFile = "f" }, func(s *Serve) { s.ReceiptHeader = "x-receipt" }},
		"TOP_KEYS":             {func(s *Serve) { n := 10; s.TopKeys = &n }, func(s *Serve) { s.AdminAddr = ":1" }},
		"ADMIN_TOKEN_FILE":     {func(s *Serve) { s.AdminTokenFile = "f" }, func(s *Serve) { s.AdminAddr = ":1" }},
		"ADMIN_TLS_CERT":       {func(s *Serve) { s.AdminCert = "f" }, func(s *Serve) { s.AdminAddr = ":1" }},
		"ADMIN_TLS_KEY":        {func(s *Serve) { s.AdminKey = "f" }, func(s *Serve) { s.AdminAddr = ":1" }},
		"ADMIN_TLS_CLIENT_CA":  {func(s *Serve) { s.AdminClientCA = "f" }, func(s *Serve) { s.AdminAddr = ":1" }},
	} {
		s := defaults()
		c.set(&s)
		if found := ineffective(t, &s); len(found) != 1 || found[0].Setting != setting || found[0].Reason == "" || found[0].Expected {
			t.Errorf("%s while its feature is off: %+v", setting, found)
		}
		c.enable(&s)
		if found := ineffective(t, &s); len(found) != 0 {
			t.Errorf("%s while its feature is on: %+v", setting, found)
		}
	}
}

func TestVariablesWithoutEffectAreReported(t *testing.T) {
	s := defaults()
	found := ineffective(t, &s, "EXPIRATION_JITTER_MAX_SECONDS=300", "REDIS_PIPELINE_WINDOW=")
	if len(found) != 1 || found[0].Setting != "EXPIRATION_JITTER_MAX_SECONDS" || !found[0].Expected {
		t.Errorf("%+v, want EXPIRATION_JITTER_MAX_SECONDS alone, as expected", found)
	}
	_, err := s.Ineffective([]string{"REDIS_PIPELINE_WINDOW=soon", "RUNTIME_WATCH_ROOT=perhaps"})
	if err == nil || err.Error() != `RUNTIME_WATCH_ROOT: cannot read "perhaps": remove it, because it has no effect
REDIS_PIPELINE_WINDOW: cannot read "soon": remove it, because it has no effect` {
		t.Errorf("error %v, want both variables with their values", err)
	}
}

func TestUnknownVariablesAreReportedOnlyIfMisspelled(t *testing.T) {
	for variable, want := range map[string]string{
		"STORE_TIMEOUTS":         "did you mean STORE_TIMEOUT?",
		"STORETIMEOUT":           "did you mean STORE_TIMEOUT?",
		"store_timeout":          "did you mean STORE_TIMEOUT?",
		"REDIS_ULR":              "did you mean REDIS_URL?",
		"REDIS_PIPELINE_WINDOWS": "did you mean REDIS_PIPELINE_WINDOW?",
		"XDS_CLIENT_RETRIES":     "unknown setting",
		"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVALS": "did you mean CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL?",
		// Settings, and variables of the system, of Kubernetes and of other programs.
		"STORE_TIMEOUT": "", "REDIS_PIPELINE_WINDOW": "", "PATH": "", "HOME": "", "HOSTNAME": "", "POST": "", "GOMEMLIMIT": "",
		"GRPC_GO_LOG_SEVERITY_LEVEL": "", "OTEL_EXPORTER_OTLP_ENDPOINT": "", "DOG_STATSD_MOGRIFIER_A_TAGS": "", "DD_ENTITY_ID": "",
		"REDIS_PORT": "", "REDIS_SERVICE_HOST": "", "REDIS_SENTINEL_SERVICE_PORT_TCP_REDIS": "", "REDIS_SENTINEL_PORT": "",
		"REDIS_SENTINEL_PORT_26379_TCP_ADDR": "", "WEIR_PORT_8081_TCP": "", "GRPC_PORT_8081_TCP": "", "STORE_PASSWORD": "",
	} {
		got := misspelled(map[string]string{variable: "s3cret"})
		if want == "" && len(got) == 0 {
			continue
		}
		if want == "" || len(got) != 1 || got[0].Setting != variable || !strings.Contains(got[0].Reason, want) || strings.Contains(got[0].Reason, "s3cret") {
			t.Errorf("%s: %+v, want %q", variable, got, want)
		}
	}
	s := defaults()
	if found := ineffective(t, &s, "STORE_TIMEOUTS=", "REDIS_ULR", ""); len(found) != 0 {
		t.Errorf("empty variables: %+v", found)
	}
	if found := ineffective(t, &s, "STORE_TIMEOUTS=1s"); len(found) != 1 || found[0].Expected {
		t.Errorf("a misspelled variable: %+v", found)
	}
}

// Every prefix begins a setting.
func TestEveryPrefixBeginsASetting(t *testing.T) {
	for _, p := range prefixes {
		if !slices.ContainsFunc(variables(), func(v string) bool { return strings.HasPrefix(v, p) }) {
			t.Errorf("no setting begins with %s", p)
		}
	}
}
