package settings

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Rules are the settings of the source of the rules.
type Rules struct {
	Config                            string `env:"CONFIG_PATH" placeholder:"FILE|DIR" help:"The rules: a YAML file or a folder of YAML files. Default: RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY."`
	Overlay                           string `env:"CONFIG_OVERLAY" placeholder:"FILE|DIR" help:"An overlay for rules from another source, such as xDS: a YAML file or folder. It sets these keys of rules: ${overlay_keys}."`
	ShadowConfig                      string `env:"SHADOW_CONFIG" placeholder:"FILE|DIR" help:"Candidate rules, which decide every request a second time and never deny one: see docs/shadow.md. The file may be missing, and Weir loads its changes."`
	ShadowMaxBytes                    int64  `env:"SHADOW_MAX_BYTES" default:"0" placeholder:"BYTES" help:"The memory for the counters of SHADOW_CONFIG. Beyond it, Weir evicts keys, so the candidate denies too little. 0 means 128 MiB, enough for about a million keys."`
	ConfigType                        string `env:"CONFIG_TYPE" default:"FILE" placeholder:"FILE|GRPC_XDS_SOTW" help:"The source of the rules: files, or a control plane."`
	RuntimeRoot                       string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" help:"The first part of the path to the rules. CONFIG_PATH replaces all three parts."`
	RuntimeSubdirectory               string `env:"RUNTIME_SUBDIRECTORY" help:"The second part of the path to the rules."`
	RuntimeAppdirectory               string `env:"RUNTIME_APPDIRECTORY" default:"config" help:"The third part of the path to the rules."`
	MergeDomainConfig                 bool   `env:"MERGE_DOMAIN_CONFIG" help:"Accept several files with the same domain, and merge their rules. If false, a domain in two files is a fault."`
	UseCalendarMonthRateLimit         bool   `env:"USE_CALENDAR_MONTH_RATE_LIMIT" help:"Make the unit month a calendar month in UTC for fixed windows without window_start. If false, a month is 30 days."`
	ForceStartWithoutInitialConfig    bool   `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" help:"Start and be ready without rules, or with rules that have faults. Until rules are loaded, requests get UNAVAILABLE."`
	HealthyWithAtLeastOneConfigLoaded bool   `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" help:"Be ready only once rules are loaded, even with FORCE_START_WITHOUT_INITIAL_CONFIG."`
}

// The sources of rules.
const (
	FromFiles = "FILE"
	FromXDS   = "GRPC_XDS_SOTW"
)

func (r *Rules) complete(errs *settingErrors) {
	setDefault(&r.ConfigType, FromFiles)
	errs.oneOf("CONFIG_TYPE", &r.ConfigType, FromFiles, FromXDS)
	if r.ShadowMaxBytes < 0 {
		errs.require("SHADOW_MAX_BYTES", r.ShadowMaxBytes, "be at least 0 (0: 128 MiB)")
	}
}

// Path returns the file or folder of rules.
func (r *Rules) Path() string {
	if r.Config != "" {
		return r.Config
	}
	return filepath.Join(r.RuntimeRoot, r.RuntimeSubdirectory, r.RuntimeAppdirectory)
}

// XDS are the settings of rules from xDS.
type XDS struct {
	NodeID            string        `env:"CONFIG_GRPC_XDS_NODE_ID" name:"xds-node-id" default:"default" help:"The node id that Weir sends to the control plane, which selects the rules for this id."`
	NodeMetadata      string        `env:"CONFIG_GRPC_XDS_NODE_METADATA" name:"xds-node-metadata" placeholder:"K=V,..." help:"The node metadata that Weir sends to the control plane."`
	ServerURL         string        `env:"CONFIG_GRPC_XDS_SERVER_URL" name:"xds-server-url" default:"localhost:18000" help:"The control plane: host:port, or another gRPC target such as unix:///path."`
	ConnectRetry      time.Duration `env:"CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL" name:"xds-connect-retry" default:"3s" help:"The first wait between two attempts to connect, at least 10ms, if XDS_CLIENT_BACKOFF_INITIAL_INTERVAL is 0."`
	AdditionalHeaders string        `env:"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS" name:"xds-additional-headers" placeholder:"K:V,..." help:"Headers that Weir sends to the control plane, such as authorization."`
	UseTLS            bool          `env:"CONFIG_GRPC_XDS_SERVER_USE_TLS" name:"xds-use-tls" help:"Connect to the control plane with TLS."`
	ClientCert        string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_CERT" name:"xds-client-cert" placeholder:"FILE" help:"The client certificate for the control plane, in PEM. Weir reads it for each connection."`
	ClientKey         string        `env:"CONFIG_GRPC_XDS_CLIENT_TLS_KEY" name:"xds-client-key" placeholder:"FILE" help:"The key of the client certificate, in PEM."`
	ServerCA          string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_CACERT" name:"xds-server-ca" placeholder:"FILE" help:"The CA that signs the control plane's certificate, in PEM. Weir reads it for each connection. Default: the CAs of the system."`
	ServerSAN         string        `env:"CONFIG_GRPC_XDS_SERVER_TLS_SAN" name:"xds-server-san" help:"The name that the control plane's certificate must contain. Default: the host in CONFIG_GRPC_XDS_SERVER_URL."`
	RulesFile         string        `env:"CONFIG_GRPC_XDS_RULES_FILE" name:"xds-rules-file" placeholder:"FILE" help:"A file in a writable folder for the last rules from the control plane. Weir writes it after each change and loads it at startup, so a container that restarts while the control plane is unreachable has rules."`
	BackoffInitial    time.Duration `env:"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL" name:"xds-backoff-initial" default:"0s" help:"The first wait between two attempts to connect, at least 10ms. Each further wait is twice as long. After a connection that delivered rules, the first wait is at most 1s. 0 means CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL."`
	BackoffMax        time.Duration `env:"XDS_CLIENT_BACKOFF_MAX_INTERVAL" name:"xds-backoff-max" default:"10s" help:"The longest wait between two attempts to connect, at least 10ms."`
	BackoffJitter     bool          `env:"XDS_CLIENT_BACKOFF_JITTER" name:"xds-backoff-jitter" default:"true" negatable:"" help:"Choose each wait at random, from 0 to its full length, so that many replicas do not connect at the same time."`
	MaxMessageSize    int           `env:"XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES" name:"xds-max-message-size" default:"0" help:"The largest xDS message, in bytes. 0 means 4 MiB."`

	Metadata map[string]string `kong:"-"` // CONFIG_GRPC_XDS_NODE_METADATA, from Validate
	Headers  map[string]string `kong:"-"` // CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS, from Validate
}

func (x *XDS) complete(errs *settingErrors, configType string) {
	setDefault(&x.ServerURL, "localhost:18000")
	initial := "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"
	if x.BackoffInitial == 0 {
		initial, x.BackoffInitial = "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", x.ConnectRetry
	}
	if configType != FromXDS {
		return
	}
	errs.interval(initial, x.BackoffInitial)
	errs.interval("XDS_CLIENT_BACKOFF_MAX_INTERVAL", x.BackoffMax)
	x.BackoffInitial = min(x.BackoffInitial, x.BackoffMax)
	if x.MaxMessageSize < 0 {
		errs.require("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", x.MaxMessageSize, "be at least 0")
	}
	if (x.ClientCert == "") != (x.ClientKey == "") {
		errs.add("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "the certificate or its key is missing: set CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY, or neither")
	}
	var err error
	errs.utf8("CONFIG_GRPC_XDS_NODE_ID", x.NodeID)
	errs.utf8("CONFIG_GRPC_XDS_NODE_METADATA", x.NodeMetadata)
	x.Metadata, err = pairs(x.NodeMetadata, "=")
	if err != nil {
		errs.add("CONFIG_GRPC_XDS_NODE_METADATA", "%w", err)
	}
	x.Headers, err = pairs(x.AdditionalHeaders, ":")
	if err != nil {
		errs.add("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "%w", err)
	}
}

// pairs reads k=v,k2=v2. Its errors do not show the text, which may be a secret.
func pairs(text, sep string) (map[string]string, error) {
	found := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		pair = strings.TrimSpace(pair)
		if pair == "" {
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
