package settings

import "time"

// Listeners are the settings of the ports.
type Listeners struct {
	Host      string `env:"HOST" default:"0.0.0.0" help:"The address on which /json, /healthcheck, /livez and /metrics listen. Set 127.0.0.1 for this machine only."`
	Port      uint16 `env:"PORT" default:"8080" help:"The port of /json, /healthcheck, /livez and /metrics. 0 means any free port."`
	JSON      bool   `env:"JSON_ENABLED" name:"json" default:"true" negatable:"" help:"Serve /json, which decides and charges like gRPC but has no TLS. Set it to false if clients can reach the port. /json then returns 404."`
	GRPCHost  string `env:"GRPC_HOST" name:"grpc-host" default:"0.0.0.0" help:"The address on which the rate limit service listens. Set 127.0.0.1 for this machine only."`
	GRPCPort  uint16 `env:"GRPC_PORT" name:"grpc-port" default:"8081" help:"The port of the rate limit service. 0 means any free port."`
	GRPCUDS   string `env:"GRPC_UDS" name:"grpc-uds" placeholder:"PATH" help:"A unix socket for the rate limit service, instead of host and port."`
	DebugHost string `env:"DEBUG_HOST" default:"127.0.0.1" help:"The address of the debug pages. Keep them private: they show the rules, and their profiles use CPU."`
	DebugPort uint16 `env:"DEBUG_PORT" default:"6070" help:"The port of the debug pages. 0 means any free port."`

	MaxInFlight int `env:"MAX_IN_FLIGHT" default:"0" help:"The maximum number of requests that Weir decides concurrently. It sheds further requests with RESOURCE_EXHAUSTED, or 503 from /json. For releases, settlements and refunds over gRPC, the bound is twice as high. 0 means 256 for each CPU."`

	MaxConnectionAge      time.Duration `env:"GRPC_MAX_CONNECTION_AGE" name:"grpc-max-connection-age" default:"24h" help:"The age at which a connection must end, so that proxies find new replicas. 0 means no limit."`
	MaxConnectionAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" name:"grpc-max-connection-age-grace" default:"1h" help:"The time for requests in flight on a connection that has reached GRPC_MAX_CONNECTION_AGE. 0 means no limit."`

	ServerUseTLS bool   `env:"GRPC_SERVER_USE_TLS" name:"grpc-server-use-tls" help:"Serve the rate limit service with TLS. Set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY too."`
	ServerCert   string `env:"GRPC_SERVER_TLS_CERT" name:"grpc-server-cert" placeholder:"FILE" help:"The certificate of the rate limit service, in PEM. Weir reads it again when the file changes."`
	ServerKey    string `env:"GRPC_SERVER_TLS_KEY" name:"grpc-server-key" placeholder:"FILE" help:"The key of the certificate, in PEM."`
	ClientCA     string `env:"GRPC_CLIENT_TLS_CACERT" name:"grpc-client-ca" placeholder:"FILE" help:"The CA that must have signed every client certificate, in PEM. It needs GRPC_SERVER_USE_TLS."`
	ClientSAN    string `env:"GRPC_CLIENT_TLS_SAN" name:"grpc-client-san" placeholder:"NAME,..." help:"DNS names, addresses, or URIs such as spiffe://cluster.local/ns/edge/sa/envoy. A client certificate must contain one of them. This setting needs GRPC_CLIENT_TLS_CACERT."`
}

// maxInFlight exceeds what fits into memory.
const maxInFlight = 1 << 30

func (l *Listeners) complete(errs *settingErrors) {
	setDefault(&l.DebugHost, "127.0.0.1") // an empty host would be all interfaces
	if l.MaxInFlight < 0 || l.MaxInFlight > maxInFlight {
		errs.require("MAX_IN_FLIGHT", l.MaxInFlight, "be from 0 (256 for each CPU) to %d", maxInFlight)
	}
	if l.MaxConnectionAge < 0 {
		errs.require("GRPC_MAX_CONNECTION_AGE", l.MaxConnectionAge, "be at least 0 (0: no limit)")
	}
	if l.MaxConnectionAgeGrace < 0 {
		errs.require("GRPC_MAX_CONNECTION_AGE_GRACE", l.MaxConnectionAgeGrace, "be at least 0 (0: no limit)")
	}
	if l.ServerUseTLS && (l.ServerCert == "" || l.ServerKey == "") {
		errs.add("GRPC_SERVER_USE_TLS", "TLS needs a certificate: set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY")
	}
	// With a CA for clients, a port that accepts every client is probably a mistake.
	if !l.ServerUseTLS && l.ClientCA != "" {
		errs.add("GRPC_CLIENT_TLS_CACERT", "without TLS every client is accepted: set GRPC_SERVER_USE_TLS=true")
	}
	if l.ServerUseTLS && l.ClientSAN != "" && l.ClientCA == "" {
		errs.add("GRPC_CLIENT_TLS_SAN", "no certificate of a client is verified: set GRPC_CLIENT_TLS_CACERT")
	}
}
