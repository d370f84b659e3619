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

// AnswerLog makes, of a log, one for answers: of each code it writes the first five of a second, for a store that is gone
// must not drown the log.
func AnswerLog(log *zap.Logger) func(*rls.Answer) {
	log = log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 5, 0)
	}))
	return func(a *rls.Answer) {
		if a.Err == nil {
			return
		}
		fields := []zap.Field{zap.Error(a.Err), zap.Duration("took", a.Took)}
		// A key holds what users sent: it is for those alone who look for it.
		if keyed := (interface{ StoreKey() string })(nil); log.Core().Enabled(zap.DebugLevel) && errors.As(a.Err, &keyed) {
			fields = append(fields, zap.String("key", keyed.StoreKey()))
		}
		log.Warn("not decided: "+a.Code.String(), fields...)
	}
}
