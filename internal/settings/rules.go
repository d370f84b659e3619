package settings

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Rules say where the rules come from.
type Rules struct {
	Config                            string `env:"CONFIG_PATH" placeholder:"FILE|DIR" help:"Rules: a YAML file, or a folder of them. Default: RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY."`
	Overlay                           string `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"A YAML file that sets algorithm, capacity, count_denied and window_start for rules that come from elsewhere, by xDS for example."`
	ConfigType                        string `env:"CONFIG_TYPE" default:"FILE" placeholder:"FILE|GRPC_XDS_SOTW" help:"Where rules come from: files, or an xDS server."`
	RuntimeRoot                       string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" help:"Where the folder of rules lies, if --config is not given."`
	RuntimeSubdirectory               string `env:"RUNTIME_SUBDIRECTORY" help:"Below RUNTIME_ROOT."`
	RuntimeAppdirectory               string `env:"RUNTIME_APPDIRECTORY" default:"config" help:"Below RUNTIME_SUBDIRECTORY."`
	MergeDomainConfig                 bool   `env:"MERGE_DOMAIN_CONFIG" help:"Several files may have the same domain: their descriptors are put together."`
	ForceStartWithoutInitialConfig    bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" help:"Be ready before the first rules have come; until then requests are answered UNAVAILABLE."`
	HealthyWithAtLeastOneConfigLoaded bool   `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" help:"Not healthy before the first rules have come."`
}

// The sources of rules.
const (
	FromFiles = "FILE"
	FromXDS   = "GRPC_XDS_SOTW"
)

func (r *Rules) complete(f *faults) {
	orDefault(&r.ConfigType, FromFiles)
	f.oneOf("CONFIG_TYPE", r.ConfigType, FromFiles, FromXDS)
}

// Path is the file or folder of rules.
func (r *Rules) Path() string {
	if r.Config != "" {
		return r.Config
	}
	return filepath.Join(r.RuntimeRoot, r.RuntimeSubdirectory, r.RuntimeAppdirectory)
}

// XDS says how rules come by xDS.
type XDS struct {
	NodeID            string        `env:"CONFIG_GRPC_XDS_NODE_ID" name:"xds-node-id" default:"default" help:"The id of this node."`
	NodeMetadata      string        `env:"CONFIG_GRPC_XDS_NODE_METADATA" name:"xds-node-metadata" placeholder:"K=V,..." help:"The metadata of this node."`
	ServerURL         string        `env:"CONFIG_GRPC_XDS_SERVER_URL" name:"xds-server-url" default:"localhost:18000" help:"The server."`
	ConnectRetry      time.Duration `env:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" name:"xds-connect-retry" default:"3s" help:"The first wait before another try to connect, if XDS_CLIENT_BACKOFF_INITIAL_INTERVAL is not given."`
	AdditionalHeaders string        `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" name:"xds-additional-headers" placeholder:"K:V,..." help:"Headers sent to the server."`
	UseTLS            bool          `env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" name:"xds-use-tls" help:"Connect by TLS."`
	ClientCert        string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" name:"xds-client-cert" placeholder:"FILE" help:"This client's certificate."`
	ClientKey         string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" name:"xds-client-key" placeholder:"FILE" help:"Its key."`
	ServerCA          string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" name:"xds-server-ca" placeholder:"FILE" help:"The CA of the server. Default: the system's."`
	ServerSAN         string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" name:"xds-server-san" help:"The name that the server's certificate must have."`
	BackoffInitial    time.Duration `env:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" name:"xds-backoff-initial" default:"0s" help:"The first wait before another try; each further one is about twice as long."`
	BackoffMax        time.Duration `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" name:"xds-backoff-max" default:"10s" help:"The longest wait between two attempts to connect."`
	BackoffJitter     bool          `env:"XDS_CLIENT_BACKOFF_JITTER" name:"xds-backoff-jitter" default:"true" negatable:"" help:"Spread the waits."`
	MaxMessageSize    int           `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" name:"xds-max-message-size" default:"0" help:"The largest message. Default: 4 MiB."`
}

func (x *XDS) complete(f *faults, configType string) {
	if x.BackoffInitial == 0 {
		x.BackoffInitial = x.ConnectRetry
	}
	if configType != FromXDS {
		return
	}
	positive(f, "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", int64(x.BackoffInitial))
	positive(f, "XDS_CLIENT_BACKOFF_MAX_INTERVAL", int64(x.BackoffMax))
	x.BackoffInitial = min(x.BackoffInitial, x.BackoffMax)
	if x.MaxMessageSize < 0 {
		f.tell("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "want 0 or more")
	}
	if (x.ClientCert == "") != (x.ClientKey == "") {
		f.tell("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "want both it and CONFIG_GRPC_XDS_CLIENT_TLS_KEY, or neither")
	}
	if _, err := x.Metadata(); err != nil {
		f.tell("CONFIG_GRPC_XDS_NODE_METADATA", "%w", err)
	}
	if _, err := x.Headers(); err != nil {
		f.tell("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "%w", err)
	}
}

// Headers are the additional headers.
func (x *XDS) Headers() (map[string]string, error) { return pairs(x.AdditionalHeaders, ":") }

// Metadata is the metadata of the node.
func (x *XDS) Metadata() (map[string]string, error) { return pairs(x.NodeMetadata, "=") }

// pairs reads k=v,k2=v2. Its errors do not show the text, which may be a secret.
func pairs(text, sep string) (map[string]string, error) {
	found := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, sep)
		if !ok || key == "" {
			return nil, fmt.Errorf("cannot read item %d: want key%svalue", i+1, sep)
		}
		found[key] = value
	}
	return found, nil
}
