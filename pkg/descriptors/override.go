package descriptors

import "github.com/weir-rls/weir/pkg/limiters"

// An OverrideBase holds the settings of a rule that a limit in the request keeps. It is comparable
// and holds no reference to the rule.
type OverrideBase struct {
	spec           limiters.Spec
	onStoreError   limiters.OnStoreError
	calendarMonths bool
}

// OverrideBase returns the settings of r that a limit in the request keeps: algorithm, parameters,
// count_denied and on_store_error, from its first limit. A nil or unlimited r has the defaults of
// the default algorithm. With calendarMonths, months are of the calendar, in UTC, unless the rule
// sets window_start.
func (r *Rule) OverrideBase(calendarMonths bool) OverrideBase {
	if r == nil || len(r.Limits) == 0 {
		return OverrideBase{spec: limiters.Spec{
			Algorithm: limiters.DefaultAlgorithm, CountDenied: limiters.CountsDeniedByDefault(limiters.DefaultAlgorithm),
		}, calendarMonths: calendarMonths}
	}
	limit := &r.Limits[0]
	o := OverrideBase{spec: limit.Spec(), onStoreError: limit.OnStoreError, calendarMonths: calendarMonths && !limit.SetsClockStart}
	o.spec.Max, o.spec.Window = 0, 0
	if limit.CalendarMonth {
		o.spec.Params = withoutCalendar(o.spec.Params)
	}
	return o
}

// Limit returns the limit that a request carries, with the settings of o. A multiplier of 0 means
// 1. Under concurrency, requestsPerUnit is the number of slots, at most [limiters.MaxLeases], and
// unit and multiplier are ignored. If the unit is shorter than a day, windows start by the clock
// even if those of the rule follow the calendar. The error reports an unknown unit, a window over
// 10 years, or a number that the algorithm rejects.
func (o OverrideBase) Limit(requestsPerUnit uint32, unit Unit, multiplier uint32) (RateLimit, error) {
	spec, requests := o.spec, int64(requestsPerUnit)
	if !limiters.HasWindow(spec.Algorithm) {
		requests = min(requests, limiters.MaxLeases)
	}
	if requests == 0 {
		// With a limit of 0, NewLimit would reject the rule's capacity.
		spec = spec.Scaled(func(int64) int64 { return 0 })
	}
	if unit < Day {
		spec.Params = withoutCalendar(spec.Params)
	}
	l, err := NewRateLimit(spec, Rate{requests, unit, max(multiplier, 1), o.calendarMonths})
	l.OnStoreError = o.onStoreError
	return l, err
}
