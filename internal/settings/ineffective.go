package settings

import "strings"

// An Ineffective is a variable that is set without effect.
type Ineffective struct {
	Setting, Reason string
	Expected        bool // the variable is one of [IgnoredVariables]; any other is probably a mistake
}

// Ineffective returns the variables of environ, a list of name=value, and the settings that are set
// without effect. The error, if any, names the variables of [IgnoredVariables] that
// envoyproxy/ratelimit would reject.
func (s *Serve) Ineffective(environ []string) ([]Ineffective, error) {
	values := map[string]string{}
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	found, err := ignored(values)
	return append(append(found, s.unused()...), misspelled(values)...), err
}

// unused returns the settings whose feature is off, or that belong to another store or source of
// rules.
func (s *Serve) unused() (found []Ineffective) {
	plainXDS := s.ConfigType == FromXDS && !s.XDS.UseTLS
	noStatsd := !s.UseStatsd && !s.UseDogStatsd && !s.DisableStats
	for _, v := range []struct {
		variable string
		unused   bool
		reason   string
	}{
		{"GRPC_SERVER_TLS_CERT", s.ServerCert != "" && !s.ServerUseTLS, noTLS},
		{"GRPC_SERVER_TLS_KEY", s.ServerKey != "" && !s.ServerUseTLS, noTLS},
		{"GRPC_CLIENT_TLS_SAN", s.ClientSAN != "" && !s.ServerUseTLS, noTLS},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_CERT", s.XDS.ClientCert != "" && plainXDS, noXDSTLS},
		{"CONFIG_GRPC_XDS_CLIENT_TLS_KEY", s.XDS.ClientKey != "" && plainXDS, noXDSTLS},
		{"CONFIG_GRPC_XDS_SERVER_TLS_CACERT", s.XDS.ServerCA != "" && plainXDS, noXDSTLS},
		{"CONFIG_GRPC_XDS_SERVER_TLS_SAN", s.XDS.ServerSAN != "" && plainXDS, noXDSTLS},
		{"CONFIG_PATH", s.Config != "" && s.ConfigType == FromXDS, "CONFIG_TYPE is GRPC_XDS_SOTW: the rules come from the control plane"},
		{"CONFIG_GRPC_XDS_RULES_FILE", s.RulesFile != "" && s.ConfigType != FromXDS, "CONFIG_TYPE is FILE: the rules come from files"},
		{"REDIS_URL", s.Redis.URL != "" && s.BackendType == Memory, "BACKEND_TYPE is memory: the counters are in memory"},
		{"MEMORY_SNAPSHOT", s.MemorySnapshot != "" && s.BackendType != Memory, "the counters are in Redis"},
		{"RECORD_SECRET_FILE", s.RecordSecretFile != "" && s.RecordPath == "", "RECORD_PATH is not set: Weir records nothing"},
		{"RETRY_AFTER_JITTER", s.RetryAfterJitter != "" && s.ResponseHeadersStandard == "", "RESPONSE_HEADERS_STANDARD is not set: Weir sends no Retry-After"},
		{"RECEIPT_KEYS_FILE", s.ReceiptKeysFile != "" && s.ReceiptHeader == "", "RECEIPT_HEADER is not set: Weir sends no receipts"},
		{"STATSD_HOST", s.StatsdHost != "" && s.StatsdHost != defaultStatsdHost && noStatsd, withoutStatsd},
		{"STATSD_PORT", s.StatsdPort != defaultStatsdPort && noStatsd, withoutStatsd},
		{"TOP_KEYS", s.TopKeys != nil && *s.TopKeys > 0 && s.AdminAddr == "", noAdmin},
		{"ADMIN_TOKEN_FILE", s.AdminTokenFile != "" && s.AdminAddr == "", noAdmin},
		{"ADMIN_TLS_CERT", s.AdminCert != "" && s.AdminAddr == "", noAdmin},
		{"ADMIN_TLS_KEY", s.AdminKey != "" && s.AdminAddr == "", noAdmin},
		{"ADMIN_TLS_CLIENT_CA", s.AdminClientCA != "" && s.AdminAddr == "", noAdmin},
	} {
		if v.unused {
			found = append(found, Ineffective{Setting: v.variable, Reason: v.reason})
		}
	}
	return found
}

const (
	defaultStatsdHost, defaultStatsdPort = "localhost", 8125

	withoutStatsd = "neither USE_STATSD nor USE_DOG_STATSD is set: Weir sends nothing to statsd, unlike envoyproxy/ratelimit"

	noTLS    = "GRPC_SERVER_USE_TLS is not set: the rate limit service uses no TLS"
	noXDSTLS = "CONFIG_GRPC_XDS_SERVER_USE_TLS is not set: the connection to the control plane is plaintext"
	noAdmin  = "ADMIN_ADDR is not set: there is no admin API"
)
