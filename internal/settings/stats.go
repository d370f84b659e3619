package settings

import (
	"strings"
	"time"
)

// Stats say to whom the process tells what it counts, beside /metrics.
type Stats struct {
	UsePrometheus    bool   `env:"USE_PROMETHEUS" help:"Serve metrics on PROMETHEUS_ADDR too. They are always on /metrics of PORT."`
	PrometheusAddr   string `env:"PROMETHEUS_ADDR" default:":9090" help:"Where."`
	PrometheusMillis bool   `env:"PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" name:"prometheus-response-time-as-milliseconds" help:"Tell ratelimit_service_response_time_seconds in milliseconds, whatever its name says."`
	PrometheusPath   string `env:"PROMETHEUS_PATH" default:"/metrics" help:"Under which path."`

	UseStatsd      bool   `env:"USE_STATSD" help:"Send metrics to a statsd server."`
	StatsdHost     string `env:"STATSD_HOST" default:"localhost" help:"Its host, and a dogstatsd server's."`
	StatsdPort     uint16 `env:"STATSD_PORT" default:"8125" help:"Its port, and a dogstatsd server's."`
	StatsdProtocol string `env:"STATSD_PROTOCOL" default:"tcp" placeholder:"tcp|udp" help:"How statsd is spoken."`
	UseDogStatsd   bool   `env:"USE_DOG_STATSD" help:"Send metrics to a dogstatsd server, by UDP."`
	Mogrifiers     string `env:"USE_DOG_STATSD_MOGRIFIERS" name:"use-dog-statsd-mogrifiers" placeholder:"NAME,..." help:"Rules that make tags of names: DOG_STATSD_MOGRIFIER_<NAME>_PATTERN, _NAME and _TAGS."`

	ExtraTags     string        `env:"EXTRA_TAGS" placeholder:"K:V,..." help:"Tags of every metric of statsd and dogstatsd."`
	FlushInterval time.Duration `env:"STATS_FLUSH_INTERVAL" name:"stats-flush-interval" default:"10s" help:"How often statsd and dogstatsd are told."`
	DisableStats  bool          `env:"DISABLE_STATS" help:"Neither statsd nor dogstatsd, whatever else is set."`
}

func (s *Stats) complete(f *faults) {
	s.StatsdProtocol = strings.ToLower(s.StatsdProtocol)
	orDefault(&s.StatsdProtocol, "tcp")
	orDefault(&s.PrometheusPath, "/metrics")
	f.oneOf("STATSD_PROTOCOL", s.StatsdProtocol, "tcp", "udp")
	positive(f, "STATS_FLUSH_INTERVAL", int64(s.FlushInterval))
	if s.UseStatsd && s.UseDogStatsd && !s.DisableStats {
		f.tell("USE_STATSD", "unable to use more than one stats sink at the same time: want it or USE_DOG_STATSD")
	}
	if !strings.HasPrefix(s.PrometheusPath, "/") {
		f.tell("PROMETHEUS_PATH", "want a path that begins with a slash")
	}
	if _, err := s.Tags(); err != nil {
		f.tell("EXTRA_TAGS", "%w", err)
	}
}

// Tags are the extra tags.
func (s *Stats) Tags() (map[string]string, error) { return pairs(s.ExtraTags, ":") }
