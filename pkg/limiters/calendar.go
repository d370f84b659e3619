package limiters

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// A calendar divides time into windows of whole days, weeks, months or years of a time zone. Windows of several units count
// from 1970-01-01 local time, those of several weeks from Monday, 1969-12-29.
//
// A window starts at the first instant of its first day. Where a change of the clock removes midnight, that is the instant of
// the change. Where it repeats midnight, it is the first of both. A window lasts until the next one starts.
type calendar struct {
	zone  *time.Location
	unit  calendarUnit
	count int64 // units of a window
	// numbers are those of the limit that do not depend on the time, see Limit.Numbers.
	numbers []int64
	// cached are the windows around a recent time: computing them costs some microseconds.
	cached atomic.Pointer[calendarWindows]
}

// A calendarUnit is an index into calendarUnitNames.
type calendarUnit int64

const (
	calendarDay calendarUnit = iota
	calendarWeek
	calendarMonth
	calendarYear
)

// calendarUnitNames are the names of the units in Params, and calendarUnitLengths their lengths in Spec.Window.
var (
	calendarUnitNames   = []string{calendarDay: "day", calendarWeek: "week", calendarMonth: "month", calendarYear: "year"}
	calendarUnitLengths = [...]time.Duration{
		calendarDay: 24 * time.Hour, calendarWeek: 7 * 24 * time.Hour, calendarMonth: 30 * 24 * time.Hour, calendarYear: 365 * 24 * time.Hour,
	}
)

// calendarParameters are those of windows by the calendar. The unit of a limit in rules sets calendar_unit.
var calendarParameters = []Parameter{
	{Key: "calendar_unit", Type: Choice, Choices: calendarUnitNames, Hidden: true, text: func(p *Params) *string { return &p.CalendarUnit }},
	{Key: "time_zone", Type: Zone, text: func(p *Params) *string { return &p.TimeZone }, About: "the time zone of windows by the calendar; UTC if absent."},
}

// newCalendar returns the calendar of a limit with window_start=calendar.
func newCalendar(spec Spec) (*calendar, error) {
	unit := calendarUnit(max(0, slices.Index(calendarUnitNames, spec.Params.CalendarUnit)))
	length := calendarUnitLengths[unit]
	if spec.Window%length != 0 {
		return nil, fmt.Errorf("a calendar window of %v is no whole number of units: want %ss of %v", spec.Window, calendarUnitNames[unit], length)
	}
	zone, err := zoneOf(cmp.Or(spec.Params.TimeZone, utc))
	return &calendar{zone: zone, unit: unit, count: int64(spec.Window / length)}, err
}

// tag returns the name of the windows in keys. Zone and unit are part of it, and Limit.ID adds the length.
func (c *calendar) tag() string {
	return "c" + calendarUnitNames[c.unit] + "@" + c.zone.String() + "@"
}

// checkNoCalendar returns an error if params has parameters of a calendar.
func checkNoCalendar(params Params) error {
	for _, p := range calendarParameters {
		if p.Text(params) != "" {
			return fmt.Errorf("%s has no meaning without a calendar: remove it, or set window_start: calendar", p.Key)
		}
	}
	return nil
}

// calendarWindows are three windows in a row, in µs since 1970: before [0, 1), current [1, 2) and after [2, 3). None is empty,
// except that before is if current begins in 1970: no window starts before that.
type calendarWindows struct {
	starts  [4]int64
	numbers []int64 // of the limit: those of the calendar and the starts
}

// start returns the start of the window at a time. The time is in the current window, or in the one after it.
func (w *calendarWindows) start(at int64) int64 {
	if at >= w.starts[2] {
		return w.starts[2]
	}
	return w.starts[1]
}

// at returns the windows around now. Calls with times in one window share a computation.
func (c *calendar) at(now int64) *calendarWindows {
	if w := c.cached.Load(); w != nil && w.starts[1] <= now && now < w.starts[2] {
		return w
	}
	w := c.compute(now)
	c.cached.Store(w)
	return w
}

// end returns the end of the window that begins at start.
func (c *calendar) end(start int64) int64 {
	if w := c.cached.Load(); w != nil {
		switch start {
		case w.starts[1]:
			return w.starts[2]
		case w.starts[2]:
			return w.starts[3]
		}
	}
	return c.compute(start).starts[2] // the cache keeps the windows around now
}

func (c *calendar) compute(now int64) *calendarWindows {
	i := c.index(now)
	// The clock may turn back over midnight, and then a moment of the day before is in the window of the day after.
	for c.start(i) > now {
		i--
	}
	for c.start(i+1) <= now {
		i++
	}
	w := &calendarWindows{starts: [4]int64{1: c.start(i), 2: c.start(i + 1)}}
	// Some days did not exist, such as 2011-12-30 in Pacific/Apia: their windows are empty.
	for j := i - 1; w.starts[1] > 0; j-- {
		if w.starts[0] = c.start(j); w.starts[0] < w.starts[1] {
			break
		}
	}
	for j := i + 2; w.starts[3] <= w.starts[2]; j++ {
		w.starts[3] = c.start(j)
	}
	w.numbers = slices.Concat(c.numbers, w.starts[:])
	return w
}

// index returns the number of the window with the local date at now. Windows are numbered from 1970, the first one is 0.
func (c *calendar) index(now int64) int64 {
	local := time.UnixMicro(now).In(c.zone)
	_, offset := local.Zone()
	units := int64(0)
	switch c.unit {
	case calendarDay:
		units = floorDiv(local.Unix()+int64(offset), secondsPerDay)
	case calendarWeek:
		units = floorDiv(floorDiv(local.Unix()+int64(offset), secondsPerDay)+daysBefore1970, 7)
	case calendarMonth:
		units = int64(local.Year()-1970)*12 + int64(local.Month()-time.January)
	case calendarYear:
		units = int64(local.Year() - 1970)
	}
	return floorDiv(units, c.count)
}

const (
	secondsPerDay = 24 * 60 * 60
	// daysBefore1970 is how many days the first week has before 1970, which began on a Thursday.
	daysBefore1970 = 3
)

// start returns the start of window i, in µs since 1970. It is at least 0.
func (c *calendar) start(i int64) int64 {
	units := i * c.count
	var date time.Time
	switch c.unit {
	case calendarDay:
		date = time.Unix(units*secondsPerDay, 0)
	case calendarWeek:
		date = time.Unix((units*7-daysBefore1970)*secondsPerDay, 0)
	case calendarMonth:
		date = time.Date(1970, time.January+time.Month(units), 1, 0, 0, 0, 0, time.UTC)
	case calendarYear:
		date = time.Date(1970+int(units), time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	return max(0, firstInstant(date.Unix(), c.zone)*int64(time.Second/time.Microsecond))
}

// firstInstant returns the first moment, in seconds since 1970, at which clocks in zone show midnight or later. The midnight is in
// seconds since 1970-01-01 00:00 of the same clocks. time.Date does not do that: where midnight is missing, it returns a
// moment of the day before.
func firstInstant(midnight int64, zone *time.Location) int64 {
	// No zone is 26 hours from UTC. The offset is constant in each period between two changes of the clock.
	for t := time.Unix(midnight-26*60*60, 0).In(zone); ; {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		at := max(t.Unix(), midnight-int64(offset))
		if end.IsZero() || at < end.Unix() {
			return at
		}
		t = end.In(zone)
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
