package settings

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Process are the settings of the process itself.
type Process struct {
	LogLevel  string `env:"LOG_LEVEL" default:"info" help:"The least severe messages to log: debug, info, warn or error."`
	LogFormat string `env:"LOG_FORMAT" default:"text" help:"text, or json with one object a line."`

	DrainDelay  time.Duration `env:"DRAIN_DELAY" default:"2s" help:"The time after SIGTERM in which Weir answers while not ready, so that proxies stop sending. Set it above the period of the readiness probe. 0: none."`
	StopTimeout time.Duration `env:"STOP_TIMEOUT" default:"10s" help:"The longest wait, after DRAIN_DELAY, for requests in flight. Then Weir closes their connections."`
}

func (p *Process) complete(errs *settingErrors) {
	setDefault(&p.LogLevel, "info")
	setDefault(&p.LogFormat, "text")
	if _, err := p.Level(); err != nil {
		errs.add("LOG_LEVEL", "%w", err)
	}
	errs.oneOf("LOG_FORMAT", &p.LogFormat, "text", "json")
	positive(errs, "STOP_TIMEOUT", int64(p.StopTimeout))
	if p.DrainDelay < 0 {
		errs.require("DRAIN_DELAY", "be at least 0")
	}
}

// Level returns the level of the log. Levels of envoyproxy/ratelimit that zap lacks map to the nearest one.
func (p *Process) Level() (zapcore.Level, error) {
	switch strings.ToLower(p.LogLevel) {
	case "trace", "debug":
		return zapcore.DebugLevel, nil
	case "info":
		return zapcore.InfoLevel, nil
	case "warn", "warning":
		return zapcore.WarnLevel, nil
	case "error", "fatal", "panic":
		return zapcore.ErrorLevel, nil
	default:
		return 0, fmt.Errorf("unknown level %q: write debug, info, warn or error", p.LogLevel)
	}
}
