package conform

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// minSteady is the longest time that a check with windows of a day takes.
const minSteady = 15 * time.Second

func boundaryChecks(a algorithm) []check {
	all := []check{{"turns.second." + a.name, "Do windows of a second admit no more and no less than the limit, across several turns?",
		func(t *trial) { checkBoundaries(t, a) }}}
	if a.name == "fixed_window" {
		all = append(all, check{"turns.minute." + a.name,
			"Does a window of a minute end when its reset says, and begin with a count of 0?", checkBoundaryOfMinute})
	}
	return all
}

// hammer calls from several clients at short intervals for the duration d. Each call charges one
// hit.
func (t *trial) hammer(rule string, d time.Duration) []op {
	const callers, pause = 8, 20 * time.Millisecond
	r := newRequest(t.key(rule))
	ops := make([][]op, callers)
	end := time.Now().Add(d)
	concurrently(callers, func(i int) {
		for time.Now().Before(end) && t.ctx.Err() == nil {
			ops[i] = append(ops[i], op{client: i, hits: 1, answer: t.send(t.ctx, t.conn(i), r)})
			sleep(t.ctx, pause)
		}
	})
	all := slices.Concat(ops...)
	slices.SortFunc(all, func(a, b op) int { return cmp.Compare(a.call, b.call) })
	return all
}

// A boundaryFault is a fault in the admissions over time, with the calls that show it.
type boundaryFault struct {
	text string
	ops  []op
}

// slowest is the median duration of calls above which too few calls certainly fall into one window
// of a second, or into any interval of that length.
const slowest = time.Second / 5

// reportBoundaries counts the errors of calls, and fails the check if there is a fault. Without a
// fault, it skips the check if the calls were too slow to show one.
func (t *trial) reportBoundaries(rule string, ops []op, f *boundaryFault) {
	t.countErrors(ops)
	if f == nil {
		if median := medianDuration(ops); median > slowest {
			t.skip(fmt.Sprintf("the calls take too long to place them in a window: %s, and at most %s is short enough",
				millis(median), millis(slowest)))
		}
		return
	}
	e := Evidence{Fault: f.text, Request: fmt.Sprintf("calls of 8 clients under the rule %s, one every 20 ms", rule)}
	const maximum = 40
	for i, o := range f.ops {
		if i == maximum {
			e.History = append(e.History, fmt.Sprintf("and %d more", len(f.ops)-maximum))
			break
		}
		e.History = append(e.History, o.String())
	}
	t.fault(e)
}

func medianDuration(ops []op) time.Duration {
	if len(ops) == 0 {
		return 0
	}
	var all []time.Duration
	for _, o := range ops {
		all = append(all, o.ret-o.call)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// checkBoundaries calls around the ends of windows of one second.
func checkBoundaries(t *trial, a algorithm) {
	rule := a.rule("second_10")
	ops := t.hammer(rule, a.hammered)
	t.reportBoundaries(rule, ops, a.fault(ops, 10, time.Second, t.Skew))
}

// checkBoundaryOfMinute calls around the end of a window of one minute.
func checkBoundaryOfMinute(t *trial) {
	if !t.MinuteTurn {
		t.skip("it waits up to a minute: select it with --minute-turn")
		return
	}
	const rule, limit = "minute_10", 10
	if untilReset := t.callOne(t.key(rule)).reset(); untilReset > 2*time.Second && !sleep(t.ctx, untilReset-2*time.Second) {
		t.skip(timeEnded)
		return
	}
	ops := t.hammer(rule, 4*time.Second)
	t.reportBoundaries(rule, ops, windowFault(ops, limit, time.Minute, t.Skew))
	if n, _ := admitted(ops); n < 2*limit && t.Reason == "" {
		t.fault(Evidence{Fault: fmt.Sprintf("only %d hits are admitted in 4 s around the end of the window", n),
			Expected: "20, 10 before the end of the window and 10 after it"})
	}
}

// windowFault tries each phase of the clock at which windows may begin. It returns nil if all calls
// are right at one phase. Otherwise it returns the first fault at the phase with the fewest faults.
func windowFault(ops []op, limit int64, window, skew time.Duration) (best *boundaryFault) {
	const step = time.Millisecond
	fewest := -1
	for phase := time.Duration(0); phase < window; phase += step {
		n, first := faultsAt(ops, limit, window, phase, skew+step)
		if n == 0 {
			return nil
		}
		if fewest < 0 || n < fewest {
			fewest, best = n, first
		}
	}
	return best
}

// floorDiv returns the index of the window that contains d.
func floorDiv(d, window time.Duration) int64 {
	if d < 0 {
		return -int64((-d + window - 1) / window)
	}
	return int64(d / window)
}

// faultsAt counts the windows beginning at a phase that admit the wrong number of hits. A call
// counts for a window only if it certainly fell into it.
func faultsAt(ops []op, limit int64, window, phase, skew time.Duration) (n int, first *boundaryFault) {
	inside := func(o op) (from, to int64) {
		return floorDiv(o.call-skew-phase, window), floorDiv(o.ret+skew-phase, window)
	}
	certain, possible := map[int64][]op{}, map[int64][]op{}
	for _, o := range ops {
		from, to := inside(o)
		if o.isOK() && from == to {
			certain[from] = append(certain[from], o)
		}
		for k := from; k <= to && (o.isOK() || o.err != nil); k++ {
			possible[k] = append(possible[k], o)
		}
	}
	report := func(f boundaryFault) {
		n++
		if first == nil {
			first = &f
		}
	}
	for _, all := range certain {
		if int64(len(all)) > limit {
			report(boundaryFault{fmt.Sprintf("over-admission: %d hits are admitted in one window, the limit is %d", len(all), limit), all})
		}
	}
	for _, o := range ops {
		from, to := inside(o)
		if !o.isOverLimit() || from != to {
			continue
		}
		before := int64(0)
		for _, p := range possible[from] {
			if p.call <= o.ret {
				before++
			}
		}
		if before < limit {
			report(boundaryFault{fmt.Sprintf("under-admission: a call is denied in a window that admitted at most %d hits, the limit is %d",
				before, limit),
				append(slices.Clone(possible[from]), o)})
		}
	}
	return n, first
}

// logFault returns a fault of a sliding log, or nil. A log admits at most the limit in every
// interval as long as the window, and denies only beyond it.
func logFault(ops []op, limit int64, window, skew time.Duration) *boundaryFault {
	for _, o := range ops {
		var all []op
		switch {
		case o.isOK():
			for _, p := range ops {
				if p.isOK() && p.call >= o.call && p.ret < o.call+window-skew {
					all = append(all, p)
				}
			}
			if int64(len(all)) > limit {
				return &boundaryFault{fmt.Sprintf("over-admission: %d hits are admitted in less than %s, the limit is %d", len(all), window, limit), all}
			}
		case o.isOverLimit():
			for _, p := range ops {
				if (p.isOK() || p.err != nil) && p.ret >= o.call-window-skew && p.call <= o.ret+skew {
					all = append(all, p)
				}
			}
			if int64(len(all)) < limit {
				return &boundaryFault{fmt.Sprintf("under-admission: a call is denied, and %s before it admitted at most %d hits, the limit is %d",
					window, len(all), limit), append(all, o)}
			}
		}
	}
	return nil
}

// funnelFault returns a fault of a funnel that holds limit hits, and leaks as many in a window, or
// nil.
func funnelFault(ops []op, limit int64, window, skew time.Duration) *boundaryFault {
	capacity, rate := float64(limit), float64(limit)/window.Seconds()
	for _, o := range ops {
		switch {
		case o.isOK():
			// The calls from o on that ended by the end of p were all admitted in the time between.
			for _, p := range ops {
				if !p.isOK() || p.ret < o.ret {
					continue
				}
				var all []op
				for _, q := range ops {
					if q.isOK() && q.call >= o.call && q.ret <= p.ret {
						all = append(all, q)
					}
				}
				if maximum := capacity + rate*(p.ret-o.call+skew).Seconds(); float64(len(all)) > maximum {
					return &boundaryFault{fmt.Sprintf("over-admission: %d hits are admitted in %s, a funnel of %g that leaks %g in a second admits %.1f",
						len(all), millis(p.ret-o.call), capacity, rate, maximum), all}
				}
			}
		case o.isOverLimit():
			if level, all := highestLevel(ops, o, rate, skew); level+1 < capacity {
				return &boundaryFault{fmt.Sprintf("under-admission: a call is denied while the funnel holds at most %.1f of %g", level, capacity),
					append(all, o)}
			}
		}
	}
	return nil
}

// highestLevel returns an upper bound of the level of a funnel when it denies a call, as if every
// hit had been charged as late as possible.
func highestLevel(ops []op, denied op, rate float64, skew time.Duration) (level float64, before []op) {
	for _, p := range ops {
		if (p.isOK() || p.err != nil) && p.call <= denied.ret+skew {
			before = append(before, p)
		}
	}
	late := func(p op) time.Duration { return min(p.ret, denied.call) }
	slices.SortFunc(before, func(a, b op) int { return cmp.Compare(late(a), late(b)) })
	last := time.Duration(0)
	for _, p := range before {
		level = max(0, level-rate*(late(p)-last).Seconds()) + 1
		last = late(p)
	}
	return max(0, level-rate*(denied.call-last-skew).Seconds()), before
}
