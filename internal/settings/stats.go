package settings

import (
	"net"
	"strings"
	"time"
)

// Stats are the settings of metrics besides /metrics.
type Stats struct {
	UsePrometheus    bool   `env:"USE_PROMETHEUS" help:"Serve metrics on PROMETHEUS_ADDR too. /metrics on PORT always serves them."`
	PrometheusAddr   string `env:"PROMETHEUS_ADDR" default:":9090" help:"The address and port of the additional metrics listener."`
	PrometheusMillis bool   `env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" name:"prometheus-response-time-as-milliseconds" help:"Report ratelimit_service_response_time_seconds in milliseconds, despite its name."`
	PrometheusPath   string `env:"PROMETHEUS_PATH" default:"/metrics" help:"The path of the metrics on PROMETHEUS_ADDR."`

	UseStatsd      bool   `env:"USE_STATSD" help:"Send metrics to a statsd server."`
	StatsdHost     string `env:"STATSD_HOST" default:"localhost" help:"The host of the statsd or dogstatsd server."`
	StatsdPort     uint16 `env:"STATSD_PORT" default:"8125" help:"The port of the statsd or dogstatsd server."`
	StatsdProtocol string `env:"STATSD_PROTOCOL" default:"tcp" placeholder:"tcp|udp" help:"The network of the statsd server. dogstatsd always uses UDP."`
	UseDogStatsd   bool   `env:"USE_DOG_STATSD" help:"Send metrics to a dogstatsd server instead."`
	Mogrifiers     string `env:"USE_DOG_STATSD_MOGRIFIERS" name:"use-dog-statsd-mogrifiers" placeholder:"NAME,..." help:"Names of rules that turn sections of metric names into tags. Each has the variables DOG_STATSD_MOGRIFIER_<NAME>_PATTERN, _NAME and _TAGS."`

	ExtraTags     string        `env:"EXTRA_TAGS" placeholder:"K:V,..." help:"Tags for every statsd and dogstatsd metric."`
	FlushInterval time.Duration `env:"STATS_FLUSH_INTERVAL" name:"stats-flush-interval" default:"10s" help:"The time between two sends to statsd or dogstatsd, at least 10ms."`
	DisableStats  bool          `env:"DISABLE_STATS" help:"Send nothing to statsd or dogstatsd, regardless of the other settings."`

	Tags map[string]string `kong:"-"` // EXTRA_TAGS, from Validate
}

func (s *Stats) complete(errs *settingErrors) {
	setDefault(&s.StatsdProtocol, "tcp")
	setDefault(&s.PrometheusPath, "/metrics")
	setDefault(&s.PrometheusAddr, ":9090") // an empty address would be any free port
	errs.oneOf("STATSD_PROTOCOL", &s.StatsdProtocol, "tcp", "udp")
	errs.interval("STATS_FLUSH_INTERVAL", s.FlushInterval)
	if s.UseStatsd && s.UseDogStatsd && !s.DisableStats {
		errs.add("USE_STATSD", "statsd and dogstatsd cannot be used together: remove USE_STATSD or USE_DOG_STATSD")
	}
	if s.UsePrometheus && !isAddress(s.PrometheusAddr) {
		errs.add("PROMETHEUS_ADDR", "cannot read %q: want [host]:port, such as :9090", s.PrometheusAddr)
	}
	if !strings.HasPrefix(s.PrometheusPath, "/") {
		errs.add("PROMETHEUS_PATH", "%q does not begin with a slash: want a path such as /metrics", s.PrometheusPath)
	}
	var err error
	s.Tags, err = pairs(s.ExtraTags, ":")
	if err != nil {
		errs.add("EXTRA_TAGS", "%w", err)
	}
}

// isAddress reports whether text is host:port with a port, which may be the name of a service.
func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}

// SendsStatsd reports whether metrics are sent to statsd or dogstatsd.
func (s *Stats) SendsStatsd() bool { return !s.DisableStats && (s.UseStatsd || s.UseDogStatsd) }
