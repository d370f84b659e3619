package limiters

import (
	"cmp"
	"slices"
	"sort"
	"unsafe"
)

// MaxLogLimit is the maximum of a sliding log, which stores every hit. For larger limits use a
// funnel, whose state has a constant size.
const MaxLogLimit = 1_000_000

// A slidingLog logs every hit. A hit fits if it and the hits in (t - window, t] are at most the
// maximum, so no window, wherever it begins, admits more. Denied hits are logged only if the limit
// counts them, up to twice the maximum.
type slidingLog struct {
	max, window int64 // window in µs
}

var slidingLogDefinition = definition{
	name:         "sliding_log",
	parameters:   windowedParameters,
	largestMax:   MaxLogLimit,
	hasWindow:    true,
	hasLog:       true,
	newAlgorithm: newSlidingLog,
}

// newSlidingLog returns the sliding log of spec, or an error for a maximum above [MaxLogLimit].
func newSlidingLog(spec, _ Spec) (algorithm, error) {
	if spec.Max > MaxLogLimit {
		return nil, specErrorf("a sliding log of %d hits is too large", spec.Max).
			withRemedy("want at most %d, or the algorithm funnel, which needs no memory per hit", MaxLogLimit)
	}
	return &slidingLog{max: spec.Max, window: spec.Window.Microseconds()}, nil
}

func (a *slidingLog) idPrefix() string { return "l" }

func (a *slidingLog) fits(s *State, now, n int64) (bool, int64) {
	log := s.logOrEmpty()
	live := log.live(a.window, now)
	if live.used+n <= a.max {
		return true, 0
	}
	lastToExpire := log.entries.get(log.indexOfHit(live, live.used+n-a.max))
	return false, lastToExpire.time + a.window - now
}

func (a *slidingLog) charge(s *State, now, n int64) {
	live := s.logOrEmpty().live(a.window, now)
	switch {
	case n > 0:
		s.ensureLog().add(live, min(n, 2*a.max), max(2*a.max, live.used)) // a higher maximum may have logged more
	case s.Log != nil:
		s.Log.refund(live, min(-n, live.used))
		s.removeEmptyLog()
	}
}

// reserve returns the time of the charged entry. An estimate of 0 has no entry.
func (a *slidingLog) reserve(s *State, now, n int64) (chargedAt int64) {
	chargedAt = s.logOrEmpty().live(a.window, now).end
	if n > 0 {
		a.charge(s, now, n)
	}
	return chargedAt
}

// settle corrects charged entries that are still in the window and among the newest
// MaxMovedEntries. The log keeps at most twice the maximum.
func (a *slidingLog) settle(s *State, now int64, corrections []correction) {
	log := s.logOrEmpty()
	live := log.live(a.window, now)
	after := live.end - a.window // only later charges are corrected
	if newestFixed := log.entries.len() - MaxMovedEntries - 1; newestFixed >= live.first {
		after = max(after, log.entries.get(newestFixed).time)
	}
	var due []correction
	for _, c := range corrections {
		if c.delta != 0 && c.chargedAt > after && c.chargedAt-a.window <= now { // a later entry would come from a wrong clock
			due = append(due, c)
		}
	}
	if len(due) == 0 {
		return
	}
	s.ensureLog().correct(live, 2*a.max, due)
	s.removeEmptyLog()
}

// MaxMovedEntries bounds the entries of a sliding log that a settle moves.
const MaxMovedEntries = 10_000

func (a *slidingLog) usage(s *State, now int64) (used, resetAfter int64) {
	log := s.logOrEmpty()
	live := log.live(a.window, now)
	if live.used == 0 {
		return 0, 0
	}
	return live.used, log.entries.newest.time + a.window - now
}

func (a *slidingLog) resetTime(s *State) int64 {
	log := s.logOrEmpty()
	if log.entries.len() == 0 {
		return 0
	}
	return log.entries.newest.time + a.window
}

// extraWait returns the window, after which all hits have left. A tighter bound would need the
// entries of a log.
func (a *slidingLog) extraWait(int64) int64 { return a.window }

func (a *slidingLog) maxAdmitted() int64 { return a.max }

func (a *slidingLog) twinArgs(int64) (none [maxTwinArgs]int64, n int) { return none, 0 }

// A Log records when hits were charged.
//
// Hits of the same microsecond share an entry. An entry holds the cumulative count, so that the
// hits between two times are a difference, and every query is a binary search.
type Log struct {
	entries deque
	base    uint32 // the count before the first entry
}

// An entry records that sum hits, modulo 2^32, were logged up to and including time.
type entry struct {
	time int64
	sum  uint32
}

// A liveRange is the part of a log that is within the window.
type liveRange struct {
	end   int64  // the later of now and the newest entry
	first int    // index of the first entry within the window
	base  uint32 // the count before it
	used  int64  // the hits in it
}

// live returns the part of the log that is within the window at now. If the newest entry is more
// than a window ahead of now, no entry counts.
func (log *Log) live(window, now int64) liveRange {
	n := log.entries.len()
	if n == 0 {
		return liveRange{end: now}
	}
	newest := log.entries.newest
	if newest.time-now > window {
		return liveRange{end: now, first: n, base: newest.sum}
	}
	live := liveRange{end: max(now, newest.time), base: log.base}
	if log.entries.oldest <= live.end-window {
		live.first = sort.Search(n, func(i int) bool { return log.entries.get(i).time > live.end-window })
		live.base = log.entries.get(live.first - 1).sum
	}
	live.used = int64(newest.sum - live.base)
	return live
}

// indexOfHit returns the index of the entry that contains hit n of live, counted from 1.
func (log *Log) indexOfHit(live liveRange, n int64) int {
	return live.first + sort.Search(log.entries.len()-live.first, func(i int) bool {
		return int64(log.entries.get(live.first+i).sum-live.base) >= n
	})
}

// add logs n hits and removes the entries before live. It keeps the newest maximum hits.
func (log *Log) add(live liveRange, n, maximum int64) {
	log.entries.removeFront(live.first)
	log.base = live.base
	if over := live.used + n - maximum; over > 0 {
		// Only counted denied hits exceed maximum. The oldest hits are removed, possibly part of an
		// entry.
		live.first = 0
		over = min(over, live.used)
		log.entries.removeFront(log.indexOfHit(live, over+1))
		log.base += uint32(over)
	}
	sum := log.base + uint32(n)
	if log.entries.len() > 0 {
		last := log.entries.newest
		sum = last.sum + uint32(n)
		if last.time == live.end {
			log.entries.setSum(sum)
			return
		}
	}
	log.entries.push(entry{live.end, sum})
}

// refund removes the newest n hits.
func (log *Log) refund(live liveRange, n int64) {
	switch {
	case n == 0:
		return
	case n == live.used:
		*log = Log{}
		return
	}
	last := log.indexOfHit(live, live.used-n)
	log.entries.removeBack(log.entries.len() - 1 - last)
	log.entries.setSum(live.base + uint32(live.used-n))
	log.entries.removeFront(live.first)
	log.base = live.base
}

// correct changes the hits of the entries at the times of corrections, of which there is at least
// one. It adds a missing entry if its correction adds hits. Added hits never raise the hits of the
// log above maximum. correct rewrites all entries from the earliest correction on. If no correction
// has an effect, the log keeps the entries before live.
func (log *Log) correct(live liveRange, maximum int64, corrections []correction) {
	earliest := corrections[0].chargedAt
	for _, c := range corrections {
		earliest = min(earliest, c.chargedAt)
	}
	isAffected := func(i int) bool { return log.entries.get(live.first+i).time >= earliest }
	from := live.first + sort.Search(log.entries.len()-live.first, isAffected)
	before := live.base
	if from > live.first {
		before = log.entries.get(from - 1).sum
	}
	tail, changed := applyCorrections(log.hitsFrom(from, before), maximum-live.used, corrections)
	if !changed {
		return
	}
	log.entries.removeBack(log.entries.len() - from)
	log.entries.removeFront(live.first)
	log.base = live.base
	for _, e := range tail {
		if e.hits > 0 {
			before += uint32(e.hits)
			log.entries.push(entry{e.time, before})
		}
	}
}

// hitsAt are the hits of a log at one time, in µs since 1970.
type hitsAt struct{ time, hits int64 }

// hitsFrom returns the hits of the entries from index from on. before is the sum of the entry
// before them.
func (log *Log) hitsFrom(from int, before uint32) []hitsAt {
	all := make([]hitsAt, 0, log.entries.len()-from+1)
	for i := from; i < log.entries.len(); i++ {
		e := log.entries.get(i)
		all = append(all, hitsAt{e.time, int64(e.sum - before)})
		before = e.sum
	}
	return all
}

// applyCorrections applies corrections in order to hits, which are in the order of their times. It
// may add as many hits as are free, and as many more as it has removed before. It reports whether a
// correction has an effect.
func applyCorrections(hits []hitsAt, free int64, corrections []correction) (corrected []hitsAt, changed bool) {
	byTime := func(h hitsAt, time int64) int { return cmp.Compare(h.time, time) }
	for _, c := range corrections {
		i, found := slices.BinarySearchFunc(hits, c.chargedAt, byTime)
		if !found && c.delta < 0 {
			continue
		}
		if !found {
			hits = slices.Insert(hits, i, hitsAt{time: c.chargedAt})
		}
		delta := max(-hits[i].hits, min(c.delta, max(free, 0)))
		hits[i].hits += delta
		free -= delta
		changed = changed || delta != 0
	}
	return hits, changed
}

// size returns the memory of the log with its entries, in bytes.
func (log *Log) size() int { return logSize + log.entries.size() }

const logSize = int(unsafe.Sizeof(Log{}))
