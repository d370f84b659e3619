package telemetry

import (
	"errors"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/pkg/rls"
)

// NewLog makes a log that writes lines of text, or of JSON with the field names that envoyproxy/ratelimit uses.
func NewLog(w io.Writer, level zapcore.Level, format string) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if strings.EqualFold(format, "json") {
		config.TimeKey, config.MessageKey = "@timestamp", "@message"
		encoder = zapcore.NewJSONEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}

// oncePerSecond is log but for lines that are there already in the same second.
func oncePerSecond(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)
	}))
}

// StoreLog makes, of a log, one for a store that is lost and found. One that goes to and fro, as a cluster of which a part is
// gone, does not drown it.
func StoreLog(log *zap.Logger) func(lost bool, why error) {
	sampled := oncePerSecond(log)
	return func(lost bool, why error) {
		if lost {
			sampled.Error("the store does not answer: on_store_error says what becomes of hits", zap.Error(why))
		} else {
			sampled.Info("the store answers again")
		}
	}
}

// AnswerLog makes, of a log, one for answers: of each code it writes the first line of a second, for a store that is gone
// must not drown the log. With debug it tells of descriptors that no rule limits.
func AnswerLog(log *zap.Logger) func(*rls.Answer) {
	sampled := oncePerSecond(log)
	return func(a *rls.Answer) {
		if a.DomainNotFound || len(a.Unmatched) > 0 {
			tellUnmatched(sampled, a)
		}
		if a.Err == nil {
			return
		}
		fields := []zap.Field{zap.Error(a.Err), zap.Duration("took", a.Took)}
		// A key holds what users sent: it is for those alone who look for it.
		if keyed := (interface{ StoreKey() string })(nil); log.Core().Enabled(zap.DebugLevel) && errors.As(a.Err, &keyed) {
			fields = append(fields, zap.String("key", keyed.StoreKey()))
		}
		sampled.Warn("not decided: "+a.Code.String(), fields...)
	}
}

// tellUnmatched tells the keys of descriptors that nothing limits. Their values are what users sent.
func tellUnmatched(log *zap.Logger, a *rls.Answer) {
	if !log.Core().Enabled(zap.DebugLevel) {
		return
	}
	if a.DomainNotFound {
		log.Debug("no rules have this domain", zap.String("domain", a.Domain))
	}
	for _, entries := range a.Unmatched {
		keys := make([]string, len(entries))
		for i, e := range entries {
			keys[i] = e.Key
		}
		log.Debug("no rule limits this descriptor", zap.String("domain", a.Domain), zap.Strings("keys", keys))
	}
}
