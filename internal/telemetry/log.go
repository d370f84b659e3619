package telemetry

import (
	"io"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/weir-rls/weir/pkg/rls"
)

// NewLog makes a log that writes lines of text, or of JSON with the field names that envoyproxy/ratelimit uses. Of equal
// messages it writes the first five of a second: a store that is gone must not drown the log.
func NewLog(w io.Writer, level zapcore.Level, format string) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	config.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if strings.EqualFold(format, "json") {
		config.TimeKey, config.MessageKey = "@timestamp", "@message"
		encoder = zapcore.NewJSONEncoder(config)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(zapcore.NewSamplerWithOptions(core, time.Second, 5, 0))
}

// LogAnswer logs what went wrong with a request.
func LogAnswer(log *zap.Logger, a *rls.Answer) {
	if a.Err == nil {
		return
	}
	log.Warn("request not decided", zap.Stringer("code", a.Code), zap.Error(a.Err), zap.Duration("took", a.Took))
}
