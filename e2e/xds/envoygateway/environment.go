package envoygateway

// Endpoints holds the addresses and files in Envoy Gateway's environment variables.
type Endpoints struct {
	Gateway           string // host:port of the control plane
	Redis             string
	Prometheus        string // the address to serve metrics on
	Cert, Key, CACert string // files
}

// Pod returns the endpoints in Envoy Gateway's pod, with the user's Redis.
func Pod(redis string) Endpoints {
	return Endpoints{
		Gateway: "envoy-gateway:18001", Redis: redis, Prometheus: ":19001",
		Cert: "/certs/tls.crt", Key: "/certs/tls.key", CACert: "/certs/ca.crt",
	}
}

// Environment returns the variables that Envoy Gateway sets. There is no /data folder and no
// mapping file.
func Environment(p Endpoints) map[string]string {
	return map[string]string{
		"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false",
		"LOG_LEVEL": "info", "USE_STATSD": "false",
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": p.Gateway, "CONFIG_GRPC_XDS_NODE_ID": NodeID,
		"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": p.Cert, "GRPC_SERVER_TLS_KEY": p.Key, "GRPC_SERVER_TLS_CA_CERT": p.CACert,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS":  "true",
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": p.Cert, "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": p.Key,
		"CONFIG_GRPC_XDS_SERVER_TLS_CACERT":  p.CACert,
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"REDIS_SOCKET_TYPE":                  "tcp", "REDIS_URL": p.Redis,
		"USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": p.Prometheus, "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
	}
}
