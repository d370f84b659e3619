package limiters

// fixedWindow counts hits in windows that do not overlap. By the clock they start at multiples of the window since
// 1970, as the users of envoyproxy/ratelimit know them: a week begins on Thursday, a month has 30 days, a year 365.
// With window_start=first_hit a window starts with the first charge and ends a window later; a hit at its end opens the next.
//
// Across a boundary twice the maximum may pass in a moment: the sliding log does not have this, at the price of memory.
type fixedWindow struct {
	start int64 // of the window that count belongs to; 0: none yet
	count int64
}

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
	check: func(l *Limit) error {
		start, _ := l.spec.Params.Cut("window_start")
		l.own = windowStart(start == "first_hit")
		return nil
	},
	params: func(l *Limit) []int64 {
		return []int64{l.spec.Max, l.window, flag(l.spec.CountDenied), flag(fromFirstHit(l))}
	},
	words: 2,
	judge: func(l *Limit, s State, now, n int64) (bool, int64) { return windowOf(s).judge(l, now, n) },
	charge: func(l *Limit, s State, now, n int64) State {
		w := windowOf(s).charge(l, now, n)
		return State{A: w.start, B: w.count}
	},
	usage:  func(l *Limit, s State, now int64) (used, reset int64) { return windowOf(s).usage(l, now) },
	until:  func(l *Limit, s State) int64 { return windowOf(s).start + l.window },
	more:   func(*Limit, int64) int64 { return 0 },
	steady: true,
}

// A windowStart is true if a window starts with a key's first hit, and false if it starts by the clock.
type windowStart bool

func fromFirstHit(l *Limit) bool { return bool(l.own.(windowStart)) }

func windowOf(s State) fixedWindow { return fixedWindow{start: s.A, count: s.B} }

// at is the window at now: its start and what it counts. With window_start=first_hit a start of 0 means that none is open.
func (w fixedWindow) at(l *Limit, now int64) (start, count int64) {
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
	current := now - now%l.window
	if current != start {
		count = 0
	}
	return current, count
}

func (w fixedWindow) judge(l *Limit, now, n int64) (bool, int64) {
	start, count := w.at(l, now)
	var ok bool
	switch {
	case n > 0:
		ok = min(count+n, MaxHits) <= l.spec.Max
	case l.spec.CountDenied:
		// Not "would one more fit": the incumbent's look, on which gateways that charge afterwards rely. A limit of 0 counts nothing
		// that such a look could see.
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
	start, count := w.at(l, now)
	if n < 0 && count == 0 {
		return w
	}
	if start == 0 && fromFirstHit(l) {
		start = now
	}
	return fixedWindow{start, max(0, min(count+n, MaxHits))}
}

func (w fixedWindow) usage(l *Limit, now int64) (used, reset int64) {
	start, count := w.at(l, now)
	if start == 0 && fromFirstHit(l) {
		return 0, 0
	}
	return count, start + l.window - now
}
