package telemetry

import (
	"errors"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/rls"
)

// NewLog returns a log that writes to w as text or, if format is json, as JSON with the field names
// of envoyproxy/ratelimit.
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

// OncePerSecond returns a logger that drops repetitions of a message within a second. The logger
// takes half a megabyte.
func OncePerSecond(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return &monotonicSampler{core, zapcore.NewSamplerWithOptions(core, time.Second, 1, 0), time.Now()}
	}))
}

// A monotonicSampler asks a sampler of zap with times of the monotonic clock. With those of the
// wall clock, the sampler would drop messages until a clock that was set back has caught up.
type monotonicSampler struct {
	zapcore.Core
	sampler zapcore.Core
	start   time.Time
}

// Check implements [zapcore.Core].
func (s *monotonicSampler) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	sampled := e
	sampled.Time = s.start.Add(time.Since(s.start))
	if s.sampler.Check(sampled, nil) == nil {
		return checked
	}
	return s.Core.Check(e, checked)
}

// With implements [zapcore.Core].
func (s *monotonicSampler) With(fields []zapcore.Field) zapcore.Core {
	return &monotonicSampler{s.Core.With(fields), s.sampler, s.start}
}

// PanicLog returns a function that logs the value of a recovered panic, where it was recovered, and
// the stack.
func PanicLog(log *zap.Logger) func(where string, value any) {
	return func(where string, value any) {
		log.Error("bug in Weir, please report it", zap.String("method", where), zap.Any("panic", value),
			zap.ByteString("stack", debug.Stack()))
	}
}

// StoreLog returns functions that log failures and recoveries of the store, at most one line of
// each in a second. A cluster without one of its nodes may alternate between them.
func StoreLog(log *zap.Logger) (failed func(reason error), recovered func(guard.Outage)) {
	sampled := OncePerSecond(log)
	failed = func(reason error) { sampled.Error("store failed: on_store_error decides", zap.Error(reason)) }
	recovered = func(o guard.Outage) {
		sampled.Info("store recovered", zap.Duration("outage_seconds", o.Duration), zap.Int64("fallback_hits", o.Ops))
	}
	return failed, recovered
}

// A storeKeyError is an error of a store about one key.
type storeKeyError interface {
	error
	StoreKey() string
}

// RequestLog returns a function that logs requests with an error, at most one line in a second for
// each gRPC code, and leases that could not be ended. At level debug, it also logs denials and
// unmatched descriptors, one line of each in a second.
func RequestLog(log *zap.Logger) func(*rls.Observation) {
	sampled := OncePerSecond(log)
	var withError [codes.Unauthenticated + 1]func() *zap.Logger
	for code := range withError {
		withError[code] = sync.OnceValue(func() *zap.Logger { return OncePerSecond(log) })
	}
	return func(o *rls.Observation) {
		if log.Core().Enabled(zap.DebugLevel) {
			logUnmatched(sampled, o)
			logDenials(sampled, o)
		}
		if o.EndErr != nil {
			sampled.Warn("leases of a denied or canceled request not ended", zap.Error(o.EndErr))
		}
		if o.Err == nil {
			return
		}
		fields := []zap.Field{zap.Stringer("code", o.Code), zap.String("error", errorText(o.Err)), zap.Duration("took_seconds", o.Duration)}
		// A key contains data of users, so it is logged only at level debug.
		if log.Core().Enabled(zap.DebugLevel) {
			if keyed, ok := errors.AsType[storeKeyError](o.Err); ok {
				fields = append(fields, zap.String("key", keyed.StoreKey()))
			}
		}
		message := "request not decided"
		if o.Code == codes.OK {
			message = "request decided despite an error of the store"
		}
		withError[min(o.Code, codes.Unauthenticated)]().Warn(message, fields...)
	}
}

// errorText returns the text of err. It omits the code of a gRPC status, which has its own field.
func errorText(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

// logUnmatched logs the keys of descriptors without a limit. It omits the values, which users sent.
func logUnmatched(log *zap.Logger, o *rls.Observation) {
	if o.UnknownDomain {
		log.Debug("no rules for this domain", zap.String("domain", o.Domain))
	}
	for _, d := range o.Decisions {
		if d.Reason != decide.NoRule {
			continue
		}
		keys := make([]string, len(d.Entries))
		for i, e := range d.Entries {
			keys[i] = e.Key
		}
		log.Debug("no rule limits this descriptor", zap.String("domain", o.Domain), zap.Strings("descriptor_keys", keys))
	}
}

// logDenials logs the denying limits and the descriptors with their values, which show operators
// which user is denied.
func logDenials(log *zap.Logger, o *rls.Observation) {
	for i := range o.Decisions {
		d := &o.Decisions[i]
		if d.Reason == decide.BadLeaseID {
			log.Debug("lease id empty or longer than 256 bytes", zap.String("domain", d.Domain), zap.String("rule", d.RuleName()))
		}
		for j := range d.Verdicts {
			if !d.Verdicts[j].Denied() {
				continue
			}
			log.Debug("limit denied a request", zap.String("domain", d.Domain), zap.String("rule", d.RuleName()),
				zap.String("limit", limitLabel(d, j)), zap.Bool("enforced", o.Enforced(d)), zap.Bool("too_many_leases", d.Verdicts[j].TooManyLeases),
				zap.Stringers("entries", d.Entries))
		}
	}
}
