package limiters

import "slices"

// A windowLimit is a fixed window. It counts hits in windows that do not overlap. By the clock, windows start at multiples of
// their length since 1970, as in envoyproxy/ratelimit: a week begins on Thursday, a month has 30 days, a year 365. With
// window_start=first_hit a window starts with the first charge and ends one window later; a hit at its end opens the next.
// With window_start=calendar, windows are days, weeks, months or years of a time zone, see calendar.
//
// Around the boundary of two windows, twice the maximum may be admitted in a moment. The sliding log never does that, but
// needs memory per hit.
//
// If the limit counts denied hits, a denied hit is added to the count whatever its size. Under a limit of 100, one hit of 150
// uses up the window although it is denied. By default, a peek of such a limit is allowed while the count is at most the
// maximum (peek=over). So it is denied after the first denied hit, and not before it, as in envoyproxy/ratelimit. Gateways that
// charge afterwards rely on that. If denied hits do not count, a peek is denied by default if one more hit would be.
//
// In a State, A is the start of a window in µs since 1970, 0 if there was none yet. B is the count of that window.
type windowLimit struct {
	max, window int64 // window in µs
	countDenied bool
	peekOver    bool
	// Windows start with a key's first hit, or by a calendar, or otherwise by the clock.
	firstHit bool
	calendar *calendar
}

// The values of Params.WindowStart.
const (
	StartByClock    = "clock"
	StartByFirstHit = "first_hit"
	StartByCalendar = "calendar"
)

var windowParameters = slices.Concat([]Parameter{{
	Key: "window_start", Type: Choice, Choices: []string{StartByClock, StartByFirstHit, StartByCalendar},
	text:  func(p *Params) *string { return &p.WindowStart },
	About: "windows by the clock, from a key's first hit, or by the calendar.",
}}, calendarParameters)

var fixedWindowDefinition = definition{
	name:            "fixed_window",
	parameters:      slices.Concat(windowParameters, []Parameter{peek}, penaltyParameters, reserveParameters),
	countsDenied:    true,
	countedPeekOver: true,
	stateWords:      2,
	fixedEnd:        true,
	algorithm: func(spec Spec) (algorithm, error) {
		l := &windowLimit{
			max: spec.Max, window: spec.Window.Microseconds(), countDenied: spec.CountDenied,
			peekOver: spec.Params.Peek == PeekOver, firstHit: spec.Params.WindowStart == StartByFirstHit,
		}
		if spec.Params.WindowStart != StartByCalendar {
			return l, checkNoCalendar(spec.Params)
		}
		var err error
		if l.calendar, err = newCalendar(spec); err != nil {
			return nil, err
		}
		l.calendar.numbers = l.numbers()
		return calendarLimit{l}, nil
	},
}

// A calendarLimit is a windowLimit by the calendar: its windows and its numbers depend on the time. Its methods are separate, so
// that the other windows stay as fast as they are: the compiler inlines [windowLimit.current].
type calendarLimit struct{ *windowLimit }

func (l calendarLimit) numbersAt(now int64) []int64 { return l.calendar.at(now).numbers }

func (l calendarLimit) fits(s core, now, n int64) (bool, int64) {
	start, count := l.current(s, now)
	return l.fitsIn(count, l.calendar.end(start)-now, n)
}

func (l calendarLimit) charge(s core, now, n int64) core {
	start, count := l.current(s, now)
	return chargeWindow(s, start, count, n)
}

func (l calendarLimit) usage(s core, now int64) (used, reset int64) {
	start, count := l.current(s, now)
	return count, l.calendar.end(start) - now
}

func (l calendarLimit) resetTime(s core) int64 { return l.calendar.end(s.A) }

func (l calendarLimit) reserve(s core, now, n int64) (core, int64) {
	s = l.charge(s, now, n)
	return s, s.A
}

func (l calendarLimit) settle(s core, now int64, corrections []correction) core {
	start, _ := l.current(s, now)
	return settleWindow(l, s, now, start, corrections)
}

// current returns the window at now: its start and its count.
func (l calendarLimit) current(s core, now int64) (start, count int64) {
	w := l.calendar.at(now)
	if s.A > w.starts[2] {
		// The state is more than a window ahead: it counts as absent.
		return w.starts[1], 0
	}
	if start = w.start(max(now, s.A)); start != s.A {
		return start, 0
	}
	return start, s.B
}

func (l *windowLimit) tag() string {
	switch {
	case l.calendar != nil:
		return l.calendar.tag()
	case l.firstHit:
		return "h"
	default:
		return "w"
	}
}

func (l *windowLimit) maxUsage() int64 { return l.max }

func (l *windowLimit) numbers() []int64 {
	start := flag(l.firstHit)
	if l.calendar != nil {
		start = 2
	}
	return []int64{l.max, l.window, flag(l.countDenied), start, flag(l.peekOver)}
}

// current returns the window at now: its start and its count. With window_start=first_hit, start is 0 if no window is open.
func (l *windowLimit) current(s core, now int64) (start, count int64) {
	start, count = s.A, s.B
	if start-now > l.window {
		start, count = 0, 0
	}
	now = max(now, start)
	if l.firstHit {
		if now-start >= l.window {
			return 0, 0
		}
		return start, count
	}
	byClock := now - now%l.window
	if byClock != start {
		count = 0
	}
	return byClock, count
}

func (l *windowLimit) fits(s core, now, n int64) (bool, int64) {
	start, count := l.current(s, now)
	return l.fitsIn(count, start+l.window-now, n)
}

// fitsIn is fits in a window with a count, which ends after left.
func (l *windowLimit) fitsIn(count, left, n int64) (bool, int64) {
	var ok bool
	switch {
	case n > 0:
		ok = min(count+n, MaxHits) <= l.max
	case l.peekOver:
		// A limit of 0 counts nothing that a peek could see.
		ok = count <= l.max && l.max > 0
	default:
		ok = count < l.max
	}
	switch {
	case ok:
		return true, 0
	case max(n, 1) > l.max:
		return false, -1
	default:
		return false, left
	}
}

func (l *windowLimit) charge(s core, now, n int64) core {
	start, count := l.current(s, now)
	if start == 0 && l.firstHit {
		start = now
	}
	return chargeWindow(s, start, count, n)
}

// chargeWindow charges n hits, or refunds -n, in a window with a start and a count.
func chargeWindow(s core, start, count, n int64) core {
	if n < 0 && count == 0 {
		return s
	}
	s.A, s.B = start, max(0, min(count+n, MaxHits))
	return s
}

// reserve opens the window even for an estimate of 0. The start of the window identifies it for the settle.
func (l *windowLimit) reserve(s core, now, n int64) (core, int64) {
	s = l.charge(s, now, n)
	return s, s.A
}

// settle changes the count only while the window that was charged is the current one.
func (l *windowLimit) settle(s core, now int64, corrections []correction) core {
	start, _ := l.current(s, now)
	return settleWindow(l, s, now, start, corrections)
}

// settleWindow makes the corrections of the current window of l, which begins at start.
func settleWindow(l algorithm, s core, now, start int64, corrections []correction) core {
	for _, c := range corrections {
		if c.delta != 0 && c.at == start {
			s = l.charge(s, now, c.delta)
		}
	}
	return s
}

func (l *windowLimit) usage(s core, now int64) (used, reset int64) {
	start, count := l.current(s, now)
	if start == 0 && l.firstHit {
		return 0, 0
	}
	return count, start + l.window - now
}

func (l *windowLimit) resetTime(s core) int64 { return s.A + l.window }

func (l *windowLimit) extraWait(int64) int64 { return 0 }
