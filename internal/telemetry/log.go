package telemetry

import (
	"errors"
	"io"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/rls"
)

// NewLog returns a log that writes to w as text or, if format is json, as JSON with the field names of envoyproxy/ratelimit.
func NewLog(w io.Writer, level zapcore.Level, format string) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoder := zapcore.NewConsoleEncoder(config)
	if strings.EqualFold(format, "json") {
		config.TimeKey, config.MessageKey = "@timestamp", "@message"
		encoder = zapcore.NewJSONEncoder(config)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}

// OncePerSecond returns a logger that drops repetitions of a message within a second.
func OncePerSecond(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, 1, 0)
	}))
}

// StoreLog returns a function that logs failures and recoveries of the store, at most one line of each in a second. A cluster
// without one of its nodes may alternate between them.
func StoreLog(log *zap.Logger) func(down bool, err error) {
	sampled := OncePerSecond(log)
	return func(down bool, err error) {
		if down {
			sampled.Error("store failed: on_store_error decides", zap.Error(err))
		} else {
			sampled.Info("store recovered")
		}
	}
}

// AnswerLog returns a function that logs undecided requests, at most one line in a second for each gRPC code, and leases that could
// not be ended. At level debug, it also logs denials and unmatched descriptors, one line of each in a second.
func AnswerLog(log *zap.Logger) func(*rls.Observation) {
	debug, giveUps := OncePerSecond(log), OncePerSecond(log)
	var sampled [codes.Unauthenticated + 1]*zap.Logger
	for code := range sampled {
		sampled[code] = OncePerSecond(log)
	}
	return func(a *rls.Observation) {
		if log.Core().Enabled(zap.DebugLevel) {
			logUnmatched(debug, a)
			logDenials(debug, a)
		}
		if a.GiveUpErr != nil {
			giveUps.Warn("leases of a denied or cancelled request not ended", zap.Error(a.GiveUpErr))
		}
		if a.Err == nil {
			return
		}
		fields := []zap.Field{zap.Stringer("code", a.Code), zap.Error(a.Err), zap.Duration("took_seconds", a.Took)}
		// A key contains data of users, so it is logged only at level debug.
		if keyed := (interface{ StoreKey() string })(nil); log.Core().Enabled(zap.DebugLevel) && errors.As(a.Err, &keyed) {
			fields = append(fields, zap.String("key", keyed.StoreKey()))
		}
		sampled[min(a.Code, codes.Unauthenticated)].Warn("request not decided", fields...)
	}
}

// logUnmatched logs the keys of descriptors without a limit. It omits the values, which users sent.
func logUnmatched(log *zap.Logger, a *rls.Observation) {
	if a.DomainNotFound {
		log.Debug("no rules for this domain", zap.String("domain", a.Domain))
	}
	for _, d := range a.Decisions {
		if d.Reason != decide.NoRule {
			continue
		}
		keys := make([]string, len(d.Entries))
		for i, e := range d.Entries {
			keys[i] = e.Key
		}
		log.Debug("no rule limits this descriptor", zap.String("domain", a.Domain), zap.Strings("descriptor_keys", keys))
	}
}

// logDenials logs the denying limits and the descriptors with their values, which show operators which user is denied.
func logDenials(log *zap.Logger, a *rls.Observation) {
	for i := range a.Decisions {
		d := &a.Decisions[i]
		if d.Reason == decide.BadLeaseID {
			log.Debug("lease id empty or longer than 256 bytes", zap.String("domain", d.Domain), zap.String("rule", d.RuleName()))
		}
		for j := range d.Verdicts {
			if v := &d.Verdicts[j]; v.Allowed || v.Err != nil {
				continue
			}
			log.Debug("request denied", zap.String("domain", d.Domain), zap.String("rule", d.RuleName()),
				zap.String("limit", limitOf(d, j)), zap.Bool("enforced", enforced(a, d)), zap.Bool("too_many_leases", d.Verdicts[j].TooManyLeases),
				zap.Strings("entries", texts(d.Entries)))
		}
	}
}

func texts(entries []descriptors.Entry) []string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Key + "=" + e.Value
	}
	return all
}
