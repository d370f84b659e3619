package settings

import (
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Process are the settings of the process itself.
type Process struct {
	LogLevel  string `env:"LOG_LEVEL" default:"info" help:"The least severe messages to log: debug, info, warn or error. Changes made through the admin API are always logged."`
	LogFormat string `env:"LOG_FORMAT" default:"text" help:"The format of log lines: text, or json with one object per line."`

	DrainDelay  time.Duration `env:"DRAIN_DELAY" default:"2s" help:"The time after SIGTERM in which Weir answers while not ready, so that proxies stop sending. Set it above the period of the readiness probe. 0 means no delay."`
	StopTimeout time.Duration `env:"STOP_TIMEOUT" default:"10s" help:"The longest wait, after DRAIN_DELAY, for requests in flight. Then Weir closes their connections."`

	Level zapcore.Level `kong:"-"` // LOG_LEVEL, from Validate
}

func (p *Process) complete(errs *settingErrors) {
	setDefault(&p.LogLevel, "info")
	setDefault(&p.LogFormat, "text")
	p.completeLevel(errs)
	errs.oneOf("LOG_FORMAT", &p.LogFormat, "text", "json")
	positive(errs, "STOP_TIMEOUT", p.StopTimeout)
	if p.DrainDelay < 0 {
		errs.require("DRAIN_DELAY", p.DrainDelay, "be at least 0")
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		requireMemoryLimit(errs, os.Getenv("AUTOMEMLIMIT"))
	}
}

// requireMemoryLimit checks the value of AUTOMEMLIMIT, which package gctune uses. A value that it
// cannot use would leave the process without a memory limit.
func requireMemoryLimit(errs *settingErrors, value string) {
	if value == "" || value == "off" {
		return
	}
	if ratio, err := strconv.ParseFloat(value, 64); err != nil || !(ratio > 0 && ratio <= 1) {
		errs.require("AUTOMEMLIMIT", value, "be off, or above 0 and at most 1")
	}
}

// completeLevel parses LOG_LEVEL. Levels of envoyproxy/ratelimit that zap lacks map to the nearest
// one.
func (p *Process) completeLevel(errs *settingErrors) {
	switch strings.ToLower(p.LogLevel) {
	case "trace", "debug":
		p.Level = zapcore.DebugLevel
	case "info":
		p.Level = zapcore.InfoLevel
	case "warn", "warning":
		p.Level = zapcore.WarnLevel
	case "error", "fatal", "panic":
		p.Level = zapcore.ErrorLevel
	default:
		errs.add("LOG_LEVEL", "unknown level %q: want debug, info, warn or error", p.LogLevel)
	}
}
