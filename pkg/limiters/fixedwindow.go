package limiters

import (
	"slices"
)

// A fixedWindow counts hits in consecutive windows. By the clock, windows start at multiples of
// their length since 1970, as in envoyproxy/ratelimit, so a week begins on Thursday, a month has 30
// days and a year 365. With window_start=first_hit, a window starts with the first charge and ends
// one window later. With window_start=calendar, see [calendar].
//
// Around a boundary, twice the maximum may be admitted at once. A sliding log avoids this at the
// cost of memory for each hit.
//
// A limit that counts denied hits has peek=over by default, as in envoyproxy/ratelimit. A peek is
// then allowed while the count is at most the maximum, that is, until the first denied charge.
// Gateways that charge afterwards rely on this. For other limits, a peek is denied by default if
// one more hit would be.
type fixedWindow struct {
	max, window int64     // window in µs
	firstHit    bool      // windows start with a key's first hit, not by the clock
	calendar    *calendar // nil: windows do not follow a calendar
}

// A windowState is the words of a [State] under a fixedWindow.
type windowState struct {
	start int64 // µs since 1970; 0: no window yet
	count int64
}

func windowStateOf(s *State) windowState { return windowState{start: s.words[0], count: s.words[1]} }

func (w windowState) store(s *State) { s.words = [...]int64{w.start, w.count, 0} }

// The values of Params.WindowStart.
const (
	StartByClock    = "clock"
	StartByFirstHit = "first_hit"
	StartByCalendar = "calendar"
)

var fixedWindowParameters = slices.Concat([]Parameter{{
	Key: "window_start", Type: Choice, Choices: []string{StartByClock, StartByFirstHit, StartByCalendar}, Default: StartByClock,
	text:  func(p *Params) *string { return &p.WindowStart },
	About: "clock-aligned windows, windows from a key's first hit, or calendar windows.",
}}, calendarParameters)

var fixedWindowDefinition = definition{
	name:                  "fixed_window",
	parameters:            slices.Concat(fixedWindowParameters, windowedParameters),
	largestMax:            LargestMax,
	stateWords:            2,
	hasWindow:             true,
	countsDeniedByDefault: true,
	newAlgorithm:          newFixedWindow,
}

// newFixedWindow returns the fixed window of spec. It returns an error for an invalid calendar, and
// for parameters of a calendar under another window_start.
func newFixedWindow(spec, _ Spec) (algorithm, error) {
	a := &fixedWindow{
		max: spec.Max, window: spec.Window.Microseconds(), firstHit: spec.Params.WindowStart == StartByFirstHit,
	}
	if spec.Params.WindowStart != StartByCalendar {
		return a, validateNoCalendar(spec.Params)
	}
	var err error
	a.calendar, err = newCalendar(spec)
	return a, err
}

func (a *fixedWindow) idPrefix() string {
	switch {
	case a.calendar != nil:
		return a.calendar.idPrefix()
	case a.firstHit:
		return "h"
	default:
		return "w"
	}
}

// current returns the window at now. With window_start=first_hit, its start is 0 if no window is
// open.
func (a *fixedWindow) current(s *State, now int64) windowState {
	w := windowStateOf(s)
	if start := a.startAt(w.start, now); start != w.start {
		return windowState{start: start}
	}
	return w
}

// startAt returns the start of the window at now; 0 if none is open. The window that began at
// storedStart is current until its end, and may begin up to a window ahead of now, because a clock
// may have stepped back.
func (a *fixedWindow) startAt(storedStart, now int64) int64 {
	switch {
	case a.calendar != nil:
		return a.calendar.startAt(storedStart, now)
	case storedStart-a.window <= now && now < storedStart+a.window:
		return storedStart
	case a.firstHit:
		return 0
	default:
		return now - now%a.window
	}
}

// end returns the end of the window that begins at start.
func (a *fixedWindow) end(start int64) int64 {
	if a.calendar != nil {
		return a.calendar.end(start)
	}
	return start + a.window
}

func (a *fixedWindow) fits(s *State, now, n int64) (bool, int64) {
	w := a.current(s, now)
	if w.count+n <= a.max {
		return true, 0
	}
	return false, a.end(w.start) - now
}

func (a *fixedWindow) charge(s *State, now, n int64) {
	w := a.current(s, now)
	if w.start == 0 && a.firstHit {
		w.start = now
	}
	if n < 0 && w.count == 0 {
		return
	}
	w.count = max(0, min(w.count+n, MaxHits))
	w.store(s)
}

// reserve opens a window even for an estimate of 0, because settle identifies the charge by the
// start of its window.
func (a *fixedWindow) reserve(s *State, now, n int64) (chargedAt int64) {
	a.charge(s, now, n)
	return windowStateOf(s).start
}

// settle corrects the count only if the charged window is still current.
func (a *fixedWindow) settle(s *State, now int64, corrections []correction) {
	start := a.current(s, now).start
	for _, c := range corrections {
		if c.delta != 0 && c.chargedAt == start {
			a.charge(s, now, c.delta)
		}
	}
}

func (a *fixedWindow) usage(s *State, now int64) (used, resetAfter int64) {
	w := a.current(s, now)
	if w.start == 0 && a.firstHit {
		return 0, 0
	}
	return w.count, a.end(w.start) - now
}

func (a *fixedWindow) resetTime(s *State) int64 { return a.end(windowStateOf(s).start) }

func (a *fixedWindow) extraWait(int64) int64 { return 0 }

func (a *fixedWindow) maxAdmitted() int64 { return 2 * a.max }

func (a *fixedWindow) twinArgs(now int64) ([maxTwinArgs]int64, int) {
	switch {
	case a.calendar != nil:
		w := a.calendar.windows(now)
		return [maxTwinArgs]int64{2, w.previous, w.current, w.next, w.afterNext}, 5
	case a.firstHit:
		return [maxTwinArgs]int64{1}, 1
	default:
		return [maxTwinArgs]int64{0}, 1
	}
}
