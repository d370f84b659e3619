package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A RateLimit is a limit in Envoy's units.
type RateLimit struct {
	*limiters.Limit // the limit that stores charge

	Unit            Unit
	UnitMultiplier  uint32 // units per window, at least 1
	RequestsPerUnit int64  // hits per window, at most limiters.LargestMax; 0 denies every hit
	// CalendarMonth reports whether the window is a calendar month in UTC although the rule sets no
	// window_start.
	CalendarMonth bool
	// SetsClockStart reports whether the rule sets window_start: clock, which Limit omits because
	// it is the default.
	SetsClockStart bool
	Name           string // optional; sent to Envoy, and referred to by replaces
	// OnStoreError decides an operation if the store fails. OnStoreErrorUnset defers to the Domain.
	OnStoreError limiters.OnStoreError
	// OnDeny is the response to a request that this limit denies. Nil defers to the Domain.
	OnDeny *OnDeny
}

// Label returns the name of l or, if it has none, its index in its rule, i.
func (l *RateLimit) Label(i int) string { return cmp.Or(l.Name, strconv.Itoa(i)) }

// RateText returns the rate in words, see [RateText].
func (l *RateLimit) RateText() string {
	if l.IsConcurrency() {
		return RateText(l.RequestsPerUnit, 0, "")
	}
	return RateText(l.RequestsPerUnit, l.UnitMultiplier, l.Unit.String())
}

// RateText returns a rate in words: "5 per minute", "5 per 2 hours", or without a unit "5 at once".
func RateText(requests int64, multiplier uint32, unit string) string {
	switch {
	case unit == "":
		return fmt.Sprintf("%d at once", requests)
	case multiplier > 1:
		return fmt.Sprintf("%d per %d %ss", requests, multiplier, unit)
	}
	return fmt.Sprintf("%d per %s", requests, unit)
}

// A Rate is a number of requests for each window of Multiplier units. Without windows, it is only a
// number.
type Rate struct {
	Requests   int64
	Unit       Unit
	Multiplier uint32 // at least 1
	// CalendarMonth makes a Month of a fixed window a calendar month in UTC instead of 30 days,
	// unless the Spec sets window_start.
	CalendarMonth bool
}

// NewRateLimit returns a limit with the rate r and the other settings of spec, whose Max and Window
// it ignores. Under an algorithm without windows, it ignores the unit too, and the limit has
// UnitUnknown. The error reports an unknown unit, a window over 10 years, a calendar window shorter
// than a day, or a number that the algorithm rejects.
func NewRateLimit(spec limiters.Spec, r Rate) (RateLimit, error) {
	l := RateLimit{UnitMultiplier: 1, RequestsPerUnit: r.Requests, SetsClockStart: spec.Params.WindowStart == limiters.StartByClock}
	spec.Max, spec.Window = r.Requests, 0
	if limiters.HasWindow(spec.Algorithm) {
		window, err := r.Unit.window(r.Multiplier)
		if err != nil {
			return RateLimit{}, err
		}
		l.Unit, l.UnitMultiplier, spec.Window = r.Unit, r.Multiplier, window
	}
	p := &spec.Params
	if r.CalendarMonth && l.Unit == Month && p.WindowStart == "" && p.TimeZone == "" && acceptsParameter(spec.Algorithm, "window_start") {
		l.CalendarMonth, p.WindowStart = true, limiters.StartByCalendar
	}
	if p.WindowStart == limiters.StartByCalendar {
		if l.Unit < Day {
			return RateLimit{}, &limiters.SpecError{
				Problem: fmt.Sprintf("a calendar window is too short with the unit %v", l.Unit),
				Remedy:  "set 'unit' to day, week, month or year, or remove 'window_start'",
			}
		}
		p.CalendarUnit = l.Unit.String()
	}
	var err error
	if l.Limit, err = limiters.NewLimit(spec); err != nil {
		return RateLimit{}, err
	}
	return l, nil
}

func acceptsParameter(algorithm, parameter string) bool {
	return slices.ContainsFunc(limiters.Parameters(algorithm), func(p limiters.Parameter) bool { return p.Key == parameter })
}

// withoutCalendar returns p with clock windows instead of calendar windows.
func withoutCalendar(p limiters.Params) limiters.Params {
	if p.WindowStart == limiters.StartByCalendar {
		p.WindowStart, p.CalendarUnit, p.TimeZone = "", "", ""
	}
	return p
}
