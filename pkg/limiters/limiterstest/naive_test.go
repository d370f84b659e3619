package limiterstest

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

// The models here are the definitions of the algorithms in their plainest form. Windows are an
// integer division, a log is a list with one element per hit, and a funnel is a fraction of big
// integers. The core is compared with them.

// A model decides operations of one key, under one limit, at times in µs.
type model interface {
	// take charges n hits. If n is 0 and the peek is denied, it charges debt.
	take(now, n, debt int64) limiters.Verdict
}

// take decides op by a model.
func take(m model, now int64, op limiters.Op) limiters.Verdict {
	if op.Kind == limiters.OpCountDenied {
		return m.take(now, 0, op.Hits)
	}
	return m.take(now, op.Hits, 0)
}

var naiveModels = map[string]func(limiters.Spec) hitCounter{
	"fixed_window": func(s limiters.Spec) hitCounter { return &naiveWindow{Spec: s} },
	"sliding_log":  func(s limiters.Spec) hitCounter { return &naiveLog{Spec: s} },
	"funnel":       func(s limiters.Spec) hitCounter { return newNaiveFunnel(s) },
}

func TestCoreAgreesWithNaiveModels(t *testing.T) {
	for _, name := range WindowedAlgorithms() {
		t.Run(name, func(t *testing.T) {
			agreeWithModels(t, name, 30_000, 80, NewGenerator, func(spec limiters.Spec) decideNaively {
				m := naiveModels[name](spec)
				return func(now int64, op limiters.Op) limiters.Verdict { return take(m, now, op) }
			})
		})
	}
}

// A decideNaively decides operations of one key, under one limit, at times in µs.
type decideNaively func(now int64, op limiters.Op) limiters.Verdict

// agreeWithModels compares the core with models, over at least Sequences(n) operations of one key
// under one limit. The suite of stores covers several. Each model gets steps operations.
func agreeWithModels(
	t *testing.T, name string, n uint64, steps int, generate func(string, uint64) *Generator, newModel func(limiters.Spec) decideNaively,
) {
	t.Helper()
	ops := uint64(0)
	for seed := FirstSeed() + 1000; ops < Sequences(n); seed++ {
		g := generate(name, seed)
		g.limits = g.limits[:1]
		spec := g.limits[0].Spec()
		if name == "sliding_log" && spec.Max > 200 { // a list of hits must stay short
			continue
		}
		decide, core := newModel(spec), NewReference()
		var history []string
		for range steps {
			now, groups := g.Next()
			ops++
			op := groups[0][0]
			op.Key = "k"
			out := make([]limiters.Verdict, 1)
			must.Succeed(t, core.TakeAt(context.Background(), now, limiters.Singles(op), out))
			want := decide(now.UnixMicro(), op)
			want.At = now.UnixMicro()
			history = append(history, now.Format(time.RFC3339Nano)+" "+Format(want))
			if out[0] != want {
				t.Fatalf("seed %d, %+v, kind=%d n=%d lease=%.2x:\n%s\n got %s\nwant %s", seed, spec, op.Kind, op.Hits, op.Lease,
					strings.Join(history[max(0, len(history)-10):], "\n"), Format(out[0]), Format(want))
			}
			g.Observe(out)
		}
	}
}

// checked returns how many hits must fit for n > 0 hits or a peek to be allowed, under a log or a
// funnel.
func checked(s limiters.Spec, n int64) int64 {
	if n == 0 && s.Params.Peek == limiters.PeekOver {
		return 0
	}
	return max(n, 1)
}

func clamp(n int64) int64 { return max(-limiters.MaxHits, min(n, limiters.MaxHits)) }

type naiveWindow struct {
	limiters.Spec
	open         bool
	start, count int64

	// For a calendar: its unit, its zone, and the starts of windows by number.
	unit   string
	zone   *time.Location
	starts map[int64]int64
}

func (w *naiveWindow) take(now, n, debt int64) limiters.Verdict {
	n, debt = clamp(n), clamp(debt)
	over := w.Params.Peek == limiters.PeekOver || w.Params.Peek == "" && w.CountDenied
	start, count, open, at := w.current(now)
	var ok bool
	switch {
	case n < 0: // a refund
		ok = true
	case n > 0: // a charge
		ok = count+n <= w.Max
	case over: // a peek that is denied only above the limit
		ok = count <= w.Max && w.Max > 0
	default:
		ok = count < w.Max
	}
	retry := int64(0)
	if !ok {
		retry = -1
		if max(n, 1) <= w.Max {
			retry = w.end(start) - now
		}
	}
	if n < 0 && count > 0 || n > 0 && (ok || w.CountDenied && w.Max > 0) {
		if !open {
			open, start = true, at
		}
		count = max(0, min(count+n, limiters.MaxHits))
		w.open, w.start, w.count = true, start, count
	}
	if n == 0 && !ok && w.CountDenied && w.Max > 0 && debt > 0 {
		count = min(count+debt, limiters.MaxHits)
		w.open, w.start, w.count = true, start, count
	}
	reset := int64(0)
	if open {
		reset = w.end(start) - now
	}
	return verdict(ok, count, w.Max, retry, reset)
}

// current returns the window at now, and the key's time.
func (w *naiveWindow) current(now int64) (start, count int64, open bool, at int64) {
	window, at := w.Window.Microseconds(), now
	start, count, open = w.start, w.count, w.open
	calendar := w.Params.WindowStart == limiters.StartByCalendar
	if calendar {
		w.readCalendar()
	}
	if !calendar && start-now > window || calendar && start > w.end(w.startOf(w.indexOf(now))) {
		start, count, open = 0, 0, false
	}
	if open {
		at = max(at, start)
	}
	switch {
	case w.Params.WindowStart != limiters.StartByFirstHit:
		current := at / window * window
		if calendar {
			current = w.startOf(w.indexOf(at))
		}
		if !open || start != current {
			start, count = current, 0
		}
		open = true
	case open && at >= start+window:
		open, count = false, 0
	}
	return start, count, open, at
}

// end returns the end of the window that begins at start.
func (w *naiveWindow) end(start int64) int64 {
	if w.starts != nil {
		return w.startOf(w.indexOf(start) + 1)
	}
	return start + w.Window.Microseconds()
}

// readCalendar reads the parameters of a calendar.
func (w *naiveWindow) readCalendar() {
	if w.starts != nil {
		return
	}
	w.starts = map[int64]int64{}
	w.unit = w.Params.CalendarUnit
	w.zone, _ = time.LoadLocation(cmp.Or(w.Params.TimeZone, "UTC"))
}

// first returns the local date on which window i of a calendar begins, at midnight in UTC.
func (w *naiveWindow) first(i int64) time.Time {
	days := int(w.Window / (24 * time.Hour))
	switch w.unit {
	case "week":
		return time.Date(1969, 12, 29+int(i)*days, 0, 0, 0, 0, time.UTC)
	case "month":
		return time.Date(1970, time.Month(1+int(i)*days/30), 1, 0, 0, 0, 0, time.UTC)
	case "year":
		return time.Date(1970+int(i)*days/365, 1, 1, 0, 0, 0, 0, time.UTC)
	default:
		return time.Date(1970, 1, 1+int(i)*days, 0, 0, 0, 0, time.UTC)
	}
}

// startOf returns the start of window i: the first minute whose local date is that of the window or
// a later one. In these zones and years, all changes of the clock are at whole minutes.
func (w *naiveWindow) startOf(i int64) int64 {
	if start, known := w.starts[i]; known {
		return start
	}
	date := w.first(i)
	for at := date.Add(-26 * time.Hour); ; at = at.Add(time.Minute) {
		_, offset := at.In(w.zone).Zone()
		if local := at.Add(time.Duration(offset) * time.Second); !local.Before(date) {
			w.starts[i] = at.UnixMicro()
			return at.UnixMicro()
		}
	}
}

// indexOf returns the number of the last window that starts at a time or before.
func (w *naiveWindow) indexOf(at int64) int64 {
	i := at/w.Window.Microseconds() - 3
	if w.unit == "month" {
		i = i * 49 / 50 // most months have more than 30 days
	}
	for w.startOf(i+1) <= at {
		i++
	}
	return i
}

type naiveLog struct {
	limiters.Spec
	hits []int64 // the time of each
}

func (l *naiveLog) take(now, n, debt int64) limiters.Verdict {
	n, debt = clamp(n), clamp(debt)
	window := l.Window.Microseconds()
	live, at := l.live(now)
	wanted := checked(l.Spec, n)
	ok := n < 0 || max(n, 1) <= l.Max && int64(len(live))+wanted <= l.Max
	switch {
	case n < 0 && len(live) > 0:
		l.hits = slices.Clone(live[:max(0, len(live)+int(max(n, -1e6)))])
	case n > 0 && (ok || l.CountDenied && l.Max > 0):
		l.hits = slices.Clone(live)
		for range min(n, 2*l.Max) {
			l.hits = append(l.hits, at)
		}
		if !ok {
			l.hits = l.hits[max(0, len(l.hits)-int(2*l.Max)):]
		}
	case n == 0 && !ok && l.CountDenied && debt > 0:
		l.hits = slices.Clone(live)
		for range min(debt, 2*l.Max) {
			l.hits = append(l.hits, at)
		}
		l.hits = l.hits[max(0, len(l.hits)-int(2*l.Max)):]
	}
	live, _ = l.live(now)
	retry := int64(0)
	if !ok {
		// Finds the first moment at which enough hits have left by trying.
		retry = -1
		for dropped := 0; dropped <= len(live) && max(n, 1) <= l.Max; dropped++ {
			if int64(len(live)-dropped)+wanted <= l.Max {
				retry = live[dropped-1] + window - now
				break
			}
		}
	}
	reset := int64(0)
	if len(live) > 0 {
		reset = live[len(live)-1] + window - now
	}
	return verdict(ok, int64(len(live)), l.Max, retry, reset)
}

func (l *naiveLog) live(now int64) (live []int64, at int64) {
	if len(l.hits) == 0 {
		return nil, now
	}
	newest, window := l.hits[len(l.hits)-1], l.Window.Microseconds()
	if newest-now > window {
		return nil, now
	}
	at = max(now, newest)
	i := slices.IndexFunc(l.hits, func(t int64) bool { return t > at-window })
	if i < 0 {
		return nil, at
	}
	return l.hits[i:], at
}

// A naiveFunnel is the funnel in exact fractions: its level in hits at a time.
type naiveFunnel struct {
	limiters.Spec
	capacity int64
	at       int64
	held     *big.Rat
}

func newNaiveFunnel(s limiters.Spec) *naiveFunnel {
	return &naiveFunnel{Spec: s, capacity: cmp.Or(s.Params.Capacity, s.Max), held: new(big.Rat)}
}

func (f *naiveFunnel) take(now, n, debt int64) limiters.Verdict {
	n, debt = clamp(n), clamp(debt)
	if f.Max == 0 {
		if n < 0 {
			return verdict(true, 0, 0, 0, 0)
		}
		return verdict(false, 0, 0, -1, 0)
	}
	window := f.Window.Microseconds()
	held, at := f.level(now)
	capacity, twice := new(big.Rat).SetInt64(f.capacity), new(big.Rat).SetInt64(2*f.capacity)
	k := new(big.Rat).SetInt64(checked(f.Spec, n))
	after := new(big.Rat).Add(held, k)
	ok := n < 0 || max(n, 1) <= f.capacity && after.Cmp(capacity) <= 0
	counts := n == 0 && !ok && f.CountDenied && debt > 0
	if write := n > 0 && (ok || f.CountDenied) || n < 0 && held.Sign() > 0 || counts; write {
		if counts {
			held.Add(held, new(big.Rat).SetInt64(debt))
		} else if n > 0 {
			held = after
		} else {
			held.Add(held, new(big.Rat).SetInt64(n))
		}
		if held.Cmp(twice) > 0 {
			held = twice
		}
		if held.Sign() < 0 {
			held.SetInt64(0)
		}
		f.at, f.held = at, new(big.Rat).Set(held)
		if held.Sign() == 0 {
			f.at = 0
		}
	}
	micros := func(hits *big.Rat) int64 { // how long hits take to leave, rounded up
		return ceil(new(big.Rat).Mul(hits, big.NewRat(window, f.Max)))
	}
	retry := int64(0)
	if !ok {
		retry = -1
		if max(n, 1) <= f.capacity {
			retry = micros(new(big.Rat).Sub(new(big.Rat).Add(held, k), capacity)) + at - now
		}
	}
	reset := int64(0)
	if held.Sign() > 0 {
		reset = micros(held) + at - now
	}
	return verdict(ok, ceil(held), f.capacity, retry, reset)
}

// level returns the level at the key's time.
func (f *naiveFunnel) level(now int64) (held *big.Rat, at int64) {
	window := f.Window.Microseconds()
	held, at = new(big.Rat).Set(f.held), now
	if f.at-now > window {
		return new(big.Rat), at
	}
	at = max(now, f.at)
	held.Sub(held, big.NewRat(f.Max, window).Mul(big.NewRat(f.Max, window), new(big.Rat).SetInt64(at-f.at)))
	if held.Sign() < 0 {
		held.SetInt64(0)
	}
	return held, at
}

func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

func verdict(ok bool, used, capacity, retry, reset int64) limiters.Verdict {
	return limiters.Verdict{
		Allowed: ok, Used: used, Remaining: max(0, capacity-used),
		RetryAfter: time.Duration(retry) * time.Microsecond, ResetAfter: time.Duration(reset) * time.Microsecond,
	}
}
