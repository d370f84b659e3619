package settings

import (
	"fmt"
	"time"
)

// Listeners say what the process listens on.
type Listeners struct {
	Host      string `env:"HOST" default:"0.0.0.0" help:"Address of /json, /healthcheck and /metrics."`
	Port      uint16 `env:"PORT" default:"8080" help:"Port of /json, /healthcheck and /metrics."`
	JSON      bool   `env:"JSON_ENABLED" name:"json" default:"true" negatable:"" help:"Answer /json, which charges like gRPC and has no TLS: whoever reaches the port may ask. false: 404."`
	GRPCHost  string `env:"GRPC_HOST" name:"grpc-host" default:"0.0.0.0" help:"Address of the rate limit service."`
	GRPCPort  uint16 `env:"GRPC_PORT" name:"grpc-port" default:"8081" help:"Port of the rate limit service."`
	GRPCUDS   string `env:"GRPC_UDS" name:"grpc-uds" placeholder:"PATH" help:"A unix socket for the rate limit service, in place of host and port."`
	DebugHost string `env:"DEBUG_HOST" default:"127.0.0.1" help:"Address of the debug pages. Not everyone should read them."`
	DebugPort uint16 `env:"DEBUG_PORT" default:"6070" help:"Port of the debug pages."`

	MaxInFlight int `env:"MAX_IN_FLIGHT" default:"0" help:"The most requests that are decided at a time, by gRPC and /json together. Those past it are refused at once: RESOURCE_EXHAUSTED, and 503. 0: 256 for each CPU, which it answers in some ten milliseconds; whoever waits for more than that, Envoy gives up."`

	MaxConnectionAge      time.Duration `env:"GRPC_MAX_CONNECTION_AGE" name:"grpc-max-connection-age" default:"24h" help:"After about this long a connection is asked to end, so that proxies find new replicas; 0: never."`
	MaxConnectionAgeGrace time.Duration `env:"GRPC_MAX_CONNECTION_AGE_GRACE" name:"grpc-max-connection-age-grace" default:"1h" help:"How long it has for that."`

	ServerUseTLS bool   `env:"GRPC_SERVER_USE_TLS" name:"grpc-server-use-tls" help:"Serve the rate limit service by TLS."`
	ServerCert   string `env:"GRPC_SERVER_TLS_CERT" name:"grpc-server-cert" placeholder:"FILE" help:"The certificate, read again when it changes."`
	ServerKey    string `env:"GRPC_SERVER_TLS_KEY" name:"grpc-server-key" placeholder:"FILE" help:"Its key."`
	ClientCA     string `env:"GRPC_CLIENT_TLS_CACERT" name:"grpc-client-ca" placeholder:"FILE" help:"Clients must show a certificate of this CA. It needs GRPC_SERVER_USE_TLS."`
	ClientSAN    string `env:"GRPC_CLIENT_TLS_SAN" name:"grpc-client-san" placeholder:"NAME,..." help:"And one for any of these: DNS names, addresses, or URIs such as spiffe://cluster.local/ns/edge/sa/envoy, with commas between."`
}

// mostInFlight is more than a machine can hold.
const mostInFlight = 1 << 30

func (l *Listeners) complete(f *faults) {
	if l.MaxInFlight < 0 || l.MaxInFlight > mostInFlight {
		f.tell("MAX_IN_FLIGHT", fmt.Sprintf("want 0, which is 256 for each CPU, to %d", mostInFlight))
	}
	if l.MaxConnectionAge < 0 || l.MaxConnectionAgeGrace < 0 {
		f.tell("GRPC_MAX_CONNECTION_AGE", "want 0, which is for ever, or more, and so of its grace")
	}
	if l.ServerUseTLS && (l.ServerCert == "" || l.ServerKey == "") {
		f.tell("GRPC_SERVER_USE_TLS", "want GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY too")
	}
	// Whoever asks for clients' certificates must not get a port that takes anybody.
	if !l.ServerUseTLS && l.ClientCA != "" {
		f.tell("GRPC_CLIENT_TLS_CACERT", "want GRPC_SERVER_USE_TLS=true too: without it every client is taken, and in plain text")
	}
	if l.ServerUseTLS && l.ClientSAN != "" && l.ClientCA == "" {
		f.tell("GRPC_CLIENT_TLS_SAN", "want GRPC_CLIENT_TLS_CACERT too, to check the certificate with")
	}
}
