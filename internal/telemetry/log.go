package telemetry

import (
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

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

// AnswerLog makes, of a log, one for answers: of each code it writes the first line of a second, for a store that is gone
// must not drown the log, and a line when the store is lost and when it is back. With debug it tells of descriptors that
// no rule limits.
func AnswerLog(log *zap.Logger) func(*rls.Answer) {
	sampled := log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)
	}))
	var lost atomic.Bool
	return func(a *rls.Answer) {
		if a.DomainNotFound || len(a.Unmatched) > 0 {
			tellUnmatched(sampled, a)
		}
		asked := a.StoreTook > 0
		switch {
		case asked && a.Code == codes.Unavailable && !lost.Swap(true):
			log.Error("the store does not answer", zap.Error(a.Err))
		case asked && a.Err == nil && lost.Load() && lost.Swap(false):
			log.Info("the store answers again")
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
