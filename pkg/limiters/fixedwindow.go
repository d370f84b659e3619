package limiters

// fixedWindow counts hits in windows that do not overlap. By the clock, windows start at multiples of their length since
// 1970, as in envoyproxy/ratelimit: a week begins on Thursday, a month has 30 days, a year 365. With window_start=first_hit
// a window starts with the first charge and ends one window later; a hit at its end opens the next.
//
// Around the boundary of two windows, twice the maximum may be admitted in a moment. The sliding log never does that, but
// needs memory per hit.
//
// If the limit counts denied hits, a denied hit is added to the count whatever its size. Under a limit of 100, one hit of 150
// uses up the window although it is denied. A peek of such a limit is allowed while the count is at most the maximum. So it
// is denied after the first denied hit, and not before it, as in envoyproxy/ratelimit. Gateways that charge afterwards rely
// on that. If denied hits do not count, a peek is denied if one more hit would be.
type fixedWindow struct {
	start int64 // of the window that count belongs to; 0: no window yet
	count int64
}

// firstHit is the index of first_hit among the words of window_start.
const firstHit = 1

var fixedWindowAlgorithm = algorithm{
	name: "fixed_window",
	parameters: []Parameter{{
		Key: "window_start", Type: Word, Words: []string{"clock", "first_hit"},
		About: "windows by the clock, or from a key's first hit.",
	}},
	countsDenied: true,
	tag: func(l *Limit) string {
		if fromFirstHit(l) {
			return "h"
		}
		return "w"
	},
	complete: func(l *Limit) error {
		l.own = windowStart(l.parameter("window_start") == firstHit)
		return nil
	},
	numbers: func(l *Limit) []int64 {
		return []int64{l.spec.Max, l.window, flag(l.spec.CountDenied), flag(fromFirstHit(l))}
	},
	words: 2,
	fits:  func(l *Limit, s State, now, n int64) (bool, int64) { return windowOf(s).fits(l, now, n) },
	charge: func(l *Limit, s State, now, n int64) State {
		w := windowOf(s).charge(l, now, n)
		return State{A: w.start, B: w.count}
	},
	usage:     func(l *Limit, s State, now int64) (used, reset int64) { return windowOf(s).usage(l, now) },
	resetTime: func(l *Limit, s State) int64 { return windowOf(s).start + l.window },
	extraWait: func(*Limit, int64) int64 { return 0 },
	fixedEnd:  true,
}

// A windowStart is true if a window starts with a key's first hit, and false if it starts by the clock.
type windowStart bool

func fromFirstHit(l *Limit) bool { return bool(l.own.(windowStart)) }

func windowOf(s State) fixedWindow { return fixedWindow{start: s.A, count: s.B} }

// current returns the window at now: its start and its count. With window_start=first_hit, start is 0 if no window is open.
func (w fixedWindow) current(l *Limit, now int64) (start, count int64) {
	start, count = w.start, w.count
	if start-now > l.window {
		start, count = 0, 0
	}
	now = max(now, start)
	if fromFirstHit(l) {
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

func (w fixedWindow) fits(l *Limit, now, n int64) (bool, int64) {
	start, count := w.current(l, now)
	var ok bool
	switch {
	case n > 0:
		ok = min(count+n, MaxHits) <= l.spec.Max
	case l.spec.CountDenied:
		// A limit of 0 counts nothing that a peek could see.
		ok = count <= l.spec.Max && l.spec.Max > 0
	default:
		ok = count < l.spec.Max
	}
	switch {
	case ok:
		return true, 0
	case max(n, 1) > l.spec.Max:
		return false, -1
	default:
		return false, start + l.window - now
	}
}

func (w fixedWindow) charge(l *Limit, now, n int64) fixedWindow {
	start, count := w.current(l, now)
	if n < 0 && count == 0 {
		return w
	}
	if start == 0 && fromFirstHit(l) {
		start = now
	}
	return fixedWindow{start, max(0, min(count+n, MaxHits))}
}

func (w fixedWindow) usage(l *Limit, now int64) (used, reset int64) {
	start, count := w.current(l, now)
	if start == 0 && fromFirstHit(l) {
		return 0, 0
	}
	return count, start + l.window - now
}
