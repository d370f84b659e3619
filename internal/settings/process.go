package settings

import (
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Process are the settings of the process itself.
type Process struct {
	LogLevel  string `env:"LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat string `env:"LOG_FORMAT" default:"text" help:"text or json."`

	DrainDelay  time.Duration `env:"DRAIN_DELAY" default:"2s" help:"How long after SIGTERM the server goes on answering while it is not ready, so that proxies turn away."`
	StopTimeout time.Duration `env:"STOP_TIMEOUT" default:"10s" help:"The longest wait, after that, for connections to end."`
}

func (p *Process) complete(f *faults) {
	orDefault(&p.LogLevel, "info")
	orDefault(&p.LogFormat, "text")
	if _, err := p.Level(); err != nil {
		f.tell("LOG_LEVEL", "%w", err)
	}
	p.LogFormat = strings.ToLower(p.LogFormat)
	f.oneOf("LOG_FORMAT", p.LogFormat, "text", "json")
	positive(f, "STOP_TIMEOUT", int64(p.StopTimeout))
	if p.DrainDelay < 0 {
		f.tell("DRAIN_DELAY", "want 0 or more")
	}
}

// Level is the level of the log. The names that envoyproxy/ratelimit knows beside zap's are taken for the nearest.
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
		return 0, fmt.Errorf("unknown level %q: want debug, info, warn or error", p.LogLevel)
	}
}
