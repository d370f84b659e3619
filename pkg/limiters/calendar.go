package limiters

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	_ "time/tzdata" // for systems without a time zone database
)

// A calendar divides time into windows of whole days, weeks, months or years in a time zone.
// Windows of several units count from 1970-01-01 local time, or, for weeks, from Monday,
// 1969-12-29.
//
// A window starts at the first instant of its first day: if a clock change skips midnight, at the
// change; if it repeats midnight, at the first one. It lasts until the next window starts.
type calendar struct {
	zone  *time.Location
	unit  calendarUnit
	count int64 // units of a window
	// cached holds the windows around a recent time. To compute them is slow, see
	// BenchmarkCalendarAt.
	cached atomic.Pointer[calendarWindows]
}

type calendarUnit int64

const (
	calendarDay calendarUnit = iota
	calendarWeek
	calendarMonth
	calendarYear
)

// calendarUnitNames are the values of Params.CalendarUnit, and calendarUnitLengths the
// corresponding Spec.Window.
var (
	calendarUnitNames   = []string{calendarDay: "day", calendarWeek: "week", calendarMonth: "month", calendarYear: "year"}
	calendarUnitLengths = [...]time.Duration{
		calendarDay: 24 * time.Hour, calendarWeek: 7 * 24 * time.Hour, calendarMonth: 30 * 24 * time.Hour, calendarYear: 365 * 24 * time.Hour,
	}
)

// calendarParameters are the parameters of calendar windows. In rules, calendar_unit follows from
// the unit of the limit.
var calendarParameters = []Parameter{
	{Key: "calendar_unit", Type: Choice, Choices: calendarUnitNames, Default: calendarUnitNames[calendarDay], Derived: true,
		text: func(p *Params) *string { return &p.CalendarUnit }},
	{Key: "time_zone", Type: Zone, Default: utc, text: func(p *Params) *string { return &p.TimeZone },
		About: "the time zone of calendar windows."},
}

// newCalendar returns the calendar of a limit with window_start=calendar.
func newCalendar(spec Spec) (*calendar, error) {
	unit := calendarUnit(max(0, slices.Index(calendarUnitNames, spec.Params.CalendarUnit)))
	length := calendarUnitLengths[unit]
	if spec.Window%length != 0 {
		return nil, specErrorf("a calendar window of %v is not a whole number of units", spec.Window).
			withRemedy("want %ss of %v", calendarUnitNames[unit], length)
	}
	zone, err := zoneOf(cmp.Or(spec.Params.TimeZone, utc))
	return &calendar{zone: zone, unit: unit, count: int64(spec.Window / length)}, err
}

// idPrefix returns the part of the StateID for zone and unit. NewLimit adds the length.
func (c *calendar) idPrefix() string {
	return "c" + calendarUnitNames[c.unit] + "@" + c.zone.String() + "@"
}

// validateNoCalendar returns an error if params has parameters of a calendar.
func validateNoCalendar(params Params) error {
	for _, p := range calendarParameters {
		if p.Text(params) != "" {
			return specErrorf("'%s' has no meaning without a calendar", p.Key).withRemedy("remove it, or set 'window_start: calendar'")
		}
	}
	return nil
}

// startAt is [fixedWindow.startAt] for a calendar.
func (c *calendar) startAt(storedStart, now int64) int64 {
	w := c.windows(now)
	if storedStart == w.next {
		return storedStart // a clock stepped back into the window before that of the charge
	}
	return w.current
}

// calendarWindows are the starts of four consecutive windows, in µs since 1970. They ascend, except
// that previous is equal to current if current is 0.
type calendarWindows struct{ previous, current, next, afterNext int64 }

// windows returns the windows around now, from the cache if possible.
func (c *calendar) windows(now int64) *calendarWindows {
	if w := c.cached.Load(); w != nil && w.current <= now && now < w.next {
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
		case w.current:
			return w.next
		case w.next:
			return w.afterNext
		}
	}
	return c.compute(start).next // the cache keeps the windows around now
}

// compute returns the windows around now. Times before 1970 are in the first window.
func (c *calendar) compute(now int64) *calendarWindows {
	now = max(now, 0) // for an earlier time the search below would not end, because startOf is at least 0
	i := c.index(now)
	// If clocks are turned back over midnight, the end of the old day may already be in the new
	// window.
	for c.startOf(i) > now {
		i--
	}
	for c.startOf(i+1) <= now {
		i++
	}
	w := &calendarWindows{current: c.startOf(i), next: c.startOf(i + 1)}
	// Skipped days, such as 2011-12-30 in Pacific/Apia, have empty windows.
	w.previous, w.afterNext = w.current, w.next
	for j := i - 1; w.previous == w.current && w.current > 0; j-- {
		w.previous = c.startOf(j)
	}
	for j := i + 2; w.afterNext == w.next; j++ {
		w.afterNext = c.startOf(j)
	}
	return w
}

// index returns the number of the window with the local date of now, from 0 in 1970.
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
	// daysBefore1970 is the number of days between Monday, 1969-12-29, and 1970-01-01.
	daysBefore1970 = 3
)

// startOf returns the start of window i, in µs since 1970, at least 0.
func (c *calendar) startOf(i int64) int64 {
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

// firstInstant returns the first time, in seconds since 1970, at which clocks in zone show midnight
// or later. midnight is in seconds of local time. If midnight is skipped, time.Date would return a
// time on the previous day.
func firstInstant(midnight int64, zone *time.Location) int64 {
	// Every zone is within 26 hours of UTC. Between two clock changes, the offset is constant.
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

//go:embed zones.txt
var zoneNames string

// TimeZones returns the valid time zones, sorted: the names in Go's copy of the IANA database.
// Other names that a system may know are rejected, so that the validity of rules does not depend on
// the system. The clock changes of a zone are those of the system's database, if it has one.
func TimeZones() []string { return slices.Clone(timeZones()) }

var timeZones = sync.OnceValue(func() []string { return strings.Fields(zoneNames) })

// zones caches the [time.Location] of each name in TimeZones that was used, because a scaled limit
// is created for most charges of more than 1 hit under on_store_error: local.
var zones sync.Map

// utc is the default time zone.
const utc = "UTC"

// zoneOf returns a time zone by its name, which is case-sensitive.
func zoneOf(name string) (*time.Location, error) {
	if cached, found := zones.Load(name); found {
		return cached.(*time.Location), nil
	}
	if _, known := slices.BinarySearch(timeZones(), name); !known {
		return nil, specErrorf("unknown time_zone %q", name).withRemedy("want a name of the IANA database, such as Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the time_zone %s: %w", name, err)
	}
	zones.Store(name, zone)
	return zone, nil
}
