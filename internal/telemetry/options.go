package telemetry

import "time"

type options struct {
	nearLimitRatio float32
	maxSeries      int
	idle           time.Duration
	milliseconds   bool
	now            func() time.Time
}

// An Option changes what is counted, or how.
type Option func(*options)

// NearLimitRatio is the part of a limit from which on hits are near it: 0 to 1, by default 0.8.
func NearLimitRatio(ratio float32) Option { return func(o *options) { o.nearLimitRatio = ratio } }

// MaxSeries bounds the rules and runtime values that are counted apart; by default 10,000.
func MaxSeries(n int) Option { return func(o *options) { o.maxSeries = n } }

// SeriesIdle is after what time the series of a rule or a value that nobody uses goes; by default a day.
func SeriesIdle(d time.Duration) Option { return func(o *options) { o.idle = d } }

// ResponseTimeInMilliseconds makes ratelimit_service_response_time_seconds hold milliseconds, whatever its name says.
func ResponseTimeInMilliseconds(yes bool) Option { return func(o *options) { o.milliseconds = yes } }

func clock(now func() time.Time) Option { return func(o *options) { o.now = now } }

func newOptions(with []Option) *options {
	o := &options{nearLimitRatio: 0.8, maxSeries: 10_000, idle: 24 * time.Hour, now: time.Now}
	for _, set := range with {
		set(o)
	}
	return o
}
