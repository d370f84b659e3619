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
	max, window int64     // window in µs
	firstHit    bool      // windows start with a key's first hit, not by the clock
	calendar    *calendar // nil: windows do not follow a calendar
}

// The values of Params.WindowStart.
const (
	StartByClock    = "clock"
	StartByFirstHit = "first_hit"
	StartByCalendar = "calendar"
)

var windowParameters = slices.Concat([]Parameter{{
	Key: "window_start", Type: Choice, Choices: []string{StartByClock, StartByFirstHit, StartByCalendar}, Default: StartByClock,
	text:  func(p *Params) *string { return &p.WindowStart },
	About: "windows by the clock, from a key's first hit, or by the calendar.",
}}, calendarParameters)

var fixedWindowDefinition = definition{
	name:                  "fixed_window",
	parameters:            slices.Concat(windowParameters, counterParameters),
	largest:               LargestMax,
	stateWords:            2,
	hasWindow:             true,
	countsDeniedByDefault: true,
	newAlgorithm: func(spec, _ Spec) (algorithm, error) {
		l := &windowLimit{
			max: spec.Max, window: spec.Window.Microseconds(), firstHit: spec.Params.WindowStart == StartByFirstHit,
		}
		if spec.Params.WindowStart != StartByCalendar {
			return l, checkNoCalendar(spec.Params)
		}
		var err error
		l.calendar, err = newCalendar(spec)
		return l, err
	},
}

func (l *windowLimit) idPrefix() string {
	switch {
	case l.calendar != nil:
		return l.calendar.idPrefix()
	case l.firstHit:
		return "h"
	default:
		return "w"
	}
}

// current returns the start and the count of the window at now. With window_start=first_hit, start is 0 if no window is open.
func (l *windowLimit) current(s CounterState, now int64) (start, count int64) {
	start = l.startAt(s.A, now)
	if start == s.A {
		count = s.B
	}
	return start, count
}

// startAt returns the start of the window at now; 0 if none is open. The window that began at charged is current until its end, and may
// begin up to a window ahead of now, because a clock may have stepped back.
func (l *windowLimit) startAt(charged, now int64) int64 {
	switch {
	case l.calendar != nil:
		return l.calendar.startAt(charged, now)
	case charged-l.window <= now && now < charged+l.window:
		return charged
	case l.firstHit:
		return 0
	default:
		return now - now%l.window
	}
}

// end returns the end of the window that begins at start.
func (l *windowLimit) end(start int64) int64 {
	if l.calendar != nil {
		return l.calendar.end(start)
	}
	return start + l.window
}

func (l *windowLimit) fits(s *State, now, n int64) (bool, int64) {
	if max(n, 1) > l.max {
		return false, -1
	}
	start, count := l.current(s.CounterState, now)
	if count+n <= l.max {
		return true, 0
	}
	return false, l.end(start) - now
}

func (l *windowLimit) charge(s CounterState, now, n int64) CounterState {
	start, count := l.current(s, now)
	if start == 0 && l.firstHit {
		start = now
	}
	if n < 0 && count == 0 {
		return s
	}
	s.A, s.B = start, max(0, min(count+n, MaxHits))
	return s
}

// reserve opens a window even for an estimate of 0, because settle identifies the charge by the start of its window.
func (l *windowLimit) reserve(s CounterState, now, n int64) (CounterState, int64) {
	s = l.charge(s, now, n)
	return s, s.A
}

// settle corrects the count only if the charged window is still current.
func (l *windowLimit) settle(s CounterState, now int64, corrections []correction) CounterState {
	start := l.startAt(s.A, now)
	for _, c := range corrections {
		if c.delta != 0 && c.chargedAt == start {
			s = l.charge(s, now, c.delta)
		}
	}
	return s
}

func (l *windowLimit) usage(s *State, now int64) (used, resetAfter int64) {
	start, count := l.current(s.CounterState, now)
	if start == 0 && l.firstHit {
		return 0, 0
	}
	return count, l.end(start) - now
}

func (l *windowLimit) resetTime(s CounterState) int64 { return l.end(s.A) }

func (l *windowLimit) extraWait(int64) int64 { return 0 }

func (l *windowLimit) mostAdmitted() int64 { return 2 * l.max }

func (l *windowLimit) appendScript(b []byte, now int64) []byte {
	if l.calendar != nil {
		const byCalendar = 2 // 0 is by the clock, and 1 from the first hit
		return appendNumbers(appendNumbers(b, byCalendar), l.calendar.windows(now).starts[:]...)
	}
	return appendNumbers(b, flag(l.firstHit))
}
