package limiters

import "slices"

// A windowLimit is a fixed window: it counts hits in consecutive windows. By the clock, windows start at multiples of their length
// since 1970, as in envoyproxy/ratelimit, so a week begins on Thursday, a month has 30 days and a year 365. With
// window_start=first_hit, a window starts with the first charge and ends one window later. With window_start=calendar, see
// [calendar].
//
// Around a boundary, twice the maximum may be admitted at once. A sliding log avoids this at the cost of memory for each hit.
//
// If the limit counts denied hits, a denied hit of any size is added to the count. Under a limit of 100, one denied hit of 150 uses
// up the window. Such a limit has peek=over by default, as in envoyproxy/ratelimit: a peek is allowed while the count is at most
// the maximum, that is, until the first denied hit. Gateways that charge afterwards rely on this. For other limits, a peek is
// denied by default if one more hit would be.
//
// In a State, A is the start of a window in µs since 1970 (0: none yet), and B is the count of that window.
type windowLimit struct {
	max, window int64 // window in µs
	countDenied bool
	peekOver    bool
	// firstHit starts windows with a key's first hit; a non-nil calendar starts them by the calendar; otherwise they start by the
	// clock.
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
	neverFull: func(spec Spec) Spec {
		spec.Max = MaxPerWindow
		return spec
	},
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

// A calendarLimit is a windowLimit by the calendar. It is a type of its own so that the compiler can still inline
// [windowLimit.current] for the other windows.
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

// current returns the start and the count of the window at now.
func (l calendarLimit) current(s core, now int64) (start, count int64) {
	w := l.calendar.at(now)
	if s.A > w.starts[2] {
		// A state more than one window ahead counts as absent.
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

// current returns the start and the count of the window at now. With window_start=first_hit, start is 0 if no window is open.
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

// fitsIn is fits in a window that has a count and ends after left.
func (l *windowLimit) fitsIn(count, left, n int64) (bool, int64) {
	var ok bool
	switch {
	case n > 0:
		ok = min(count+n, MaxHits) <= l.max
	case l.peekOver:
		// A limit of 0 counts nothing, so it has to deny peeks here.
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

// reserve opens a window even for an estimate of 0, because settle identifies the charge by the start of its window.
func (l *windowLimit) reserve(s core, now, n int64) (core, int64) {
	s = l.charge(s, now, n)
	return s, s.A
}

// settle corrects the count only if the charged window is still current.
func (l *windowLimit) settle(s core, now int64, corrections []correction) core {
	start, _ := l.current(s, now)
	return settleWindow(l, s, now, start, corrections)
}

// settleWindow applies the corrections for the window of l that begins at start.
func settleWindow(l counter, s core, now, start int64, corrections []correction) core {
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
