package rulestest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/replay"
)

const (
	// maxUnrolled is the largest limit that single requests fill. One request with many hits fills
	// a larger limit.
	maxUnrolled = 100
	// maxChunks bounds the requests that fill a limit which has smaller limits beside it.
	maxChunks = 100_000
)

// A stepWriter sends requests to one rule, and writes each as a step that expects its outcome.
type stepWriter struct {
	rule     *descriptors.Rule
	entries  []descriptors.Entry
	months   bool
	start    time.Time
	now      time.Time // the last request's time
	last     time.Time // the time of the last request that is a step
	replayer *replay.Replayer
	result   decide.Result
	denied   []bool // limits that have denied a request
	steps    []string
	ids      int // lease ids used
}

func (g *generator) newStepWriter(rule *descriptors.Rule, entries []descriptors.Entry, start time.Time) *stepWriter {
	return &stepWriter{
		rule: rule, entries: entries, months: g.months, start: start, now: start, last: start, denied: make([]bool, len(rule.Limits)),
		replayer: replay.New(g.rules, replay.Options{Decide: decide.Options{CalendarMonths: g.months}}),
	}
}

// A stepSpec is a step to write.
type stepSpec struct {
	hits   int64
	refund bool
	after  time.Duration
	repeat int
	every  time.Duration
	id     string // the lease id; "" is a new one
	end    string // a further last entry, such as settle
}

// replay decides a request without writing a step.
func (w *stepWriter) replay(s stepSpec, id string) *decide.Decision {
	request := decide.Request{Domain: w.rule.Domain,
		Descriptors: []decide.Descriptor{{Entries: w.entriesOf(s, id), Hits: s.hits, Refund: s.refund}}}
	if s.refund {
		request.Descriptors[0].Hits = -s.hits
	}
	if err := w.replayer.Decide(w.now, &request, &w.result); err != nil || len(w.result.Decisions) == 0 {
		return nil
	}
	d := &w.result.Decisions[0]
	for i := range d.Verdicts {
		if len(d.Verdicts) == len(w.denied) && !d.Verdicts[i].Allowed {
			w.denied[i] = true
		}
	}
	return d
}

func (w *stepWriter) entriesOf(s stepSpec, id string) []descriptors.Entry {
	entries := slices.Clone(w.entries)
	if w.rule.UsesLeases() {
		entries[len(entries)-1].Value = id
	}
	if s.end != "" {
		entries = append(entries, descriptors.Entry{Key: s.end, Value: "1"})
	}
	return entries
}

// send sends the requests of a step, writes the step, and returns the last decision.
func (w *stepWriter) send(s stepSpec) *decide.Decision {
	w.now = w.now.Add(s.after)
	after, repeat := w.now.Sub(w.last), max(1, s.repeat)
	if s.id == "" {
		w.ids++
		s.id = fmt.Sprintf("id-%d", w.ids)
	}
	id := s.id
	var d *decide.Decision
	for i := range repeat {
		if repeat > 1 && w.rule.UsesLeases() {
			s.id, id = "id-"+number, fmt.Sprintf("id-%d", i+1)
		}
		if i > 0 {
			w.now = w.now.Add(s.every)
		}
		d = w.replay(s, id)
	}
	w.ids = max(w.ids, repeat)
	w.last = w.now
	if d != nil {
		w.write(s, after, repeat, d)
	}
	return d
}

// write writes a step that expects the decision d.
func (w *stepWriter) write(s stepSpec, after time.Duration, repeat int, d *decide.Decision) {
	var b strings.Builder
	lead := "      - "
	line := func(format string, args ...any) {
		b.WriteString(lead)
		fmt.Fprintf(&b, format+"\n", args...)
		lead = "        "
	}
	if after > 0 {
		line("after: %v", after)
	}
	request := rulesyaml.Quoted(descriptors.EntriesText(w.entriesOf(s, s.id)))
	switch {
	case s.refund:
		line("request: {descriptors: %s, hits: %d, is_negative_hits: true}", request, s.hits)
	case s.hits != 1:
		line("request: {descriptors: %s, hits: %d}", request, s.hits)
	default:
		line("request: %s", request)
	}
	if repeat > 1 {
		line("repeat: %d", repeat)
	}
	if repeat > 1 && s.every > 0 {
		line("every: %v", s.every)
	}
	line("expect: %s", outcomeText(&w.result, d))
	w.steps = append(w.steps, b.String())
}

// deny returns the steps of a test in which limit t of the rule denies a request.
func (g *generator) deny(rule *descriptors.Rule, t int, entries []descriptors.Entry) (*stepWriter, error) {
	limit := rule.Limits[t].Limit
	w := g.newStepWriter(rule, entries, g.aligned(rule, t, entries))
	chunk := limit.Capacity()
	for i := range rule.Limits {
		chunk = min(chunk, rule.Limits[i].Capacity())
	}
	var d *decide.Decision
	switch {
	case limit.Capacity() == 0:
		d = w.send(stepSpec{hits: 1})
	case chunk == 0:
		return nil, errors.New("another limit of the rule denies every request")
	case chunk == limit.Capacity():
		if limit.Capacity() <= maxUnrolled && !rule.UsesLeases() {
			w.send(stepSpec{hits: 1, repeat: int(limit.Capacity())})
		} else {
			w.send(stepSpec{hits: limit.Capacity()})
		}
		d = w.send(stepSpec{hits: 1})
	default:
		f, err := g.fill(w, t, chunk)
		if err != nil {
			return nil, err
		}
		w.send(stepSpec{hits: f.chunk, repeat: f.chunks, every: f.every})
		d = w.send(stepSpec{hits: f.hits, after: f.every})
	}
	if d == nil || !w.denied[t] {
		return nil, errors.New("the smaller limits of the rule deny first")
	}
	w.sendAfterDenial(t, d)
	return w, nil
}

// sendAfterDenial writes the steps after a denial, in which the limit has room again.
func (w *stepWriter) sendAfterDenial(t int, d *decide.Decision) {
	limit := w.rule.Limits[t].Limit
	switch {
	case d.Reason != decide.OverLimit:
		return
	case limit.IsConcurrency():
		w.send(stepSpec{hits: 0, refund: true, id: "id-1"})
		w.send(stepSpec{hits: 1})
	case limit.Reserves() && len(w.rule.Limits) == 1:
		w.send(stepSpec{hits: 0, id: "id-1", end: "settle"})
		w.send(stepSpec{hits: 1})
	default:
		_, v := d.DecidingLimit()
		w.send(stepSpec{hits: 1, after: v.RetryAfter})
	}
}

// A filling is a way to fill a limit that has smaller limits beside it: chunks at an interval, and
// then a number of hits that no longer fits.
type filling struct {
	chunk, hits int64
	chunks      int
	every       time.Duration
}

// fill returns a filling of limit t at a pace that the smaller limits allow. Its chunks are as
// large as the smallest limit or, if that fails, single hits.
func (g *generator) fill(w *stepWriter, t int, smallest int64) (filling, error) {
	for _, chunk := range slices.Compact([]int64{smallest, 1}) {
		f := filling{chunk: chunk, every: pace(w.rule, t, chunk)}
		if g.newStepWriter(w.rule, w.entries, w.start).try(&f, t) {
			return f, nil
		}
	}
	return filling{}, errors.New("the smaller limits of the rule deny first")
}

// pace returns an interval at which the limits smaller than t always allow chunks of hits.
func pace(rule *descriptors.Rule, t int, chunk int64) (every time.Duration) {
	for i := range rule.Limits {
		limit := rule.Limits[i].Limit
		if limit.Capacity() >= rule.Limits[t].Capacity() {
			continue
		}
		switch {
		case limit.IsConcurrency():
			every = max(every, limit.LeaseTTL())
		case limit.Drains():
			every = max(every, time.Duration(float64(limit.Window())*float64(chunk)/float64(max(1, limit.Spec().Max))))
		default:
			every = max(every, limit.Window()/time.Duration(max(1, limit.Capacity()/chunk)))
		}
	}
	return (every + time.Millisecond - 1).Truncate(time.Millisecond)
}

// try fills limit t by f and completes f. It returns false if a limit denied, or if limit t is no
// fuller than two windows before, as all chunks are alike.
func (w *stepWriter) try(f *filling, t int) bool {
	limit := w.rule.Limits[t].Limit
	plateau, fewest, since := 2*max(limit.Window(), limit.LeaseTTL()), int64(math.MaxInt64), w.now
	for f.chunks < maxChunks && w.now.Sub(w.start) < maxOffset/2 {
		f.chunks++
		d := w.replay(stepSpec{hits: f.chunk}, fmt.Sprintf("id-%d", f.chunks))
		if d == nil || len(d.Verdicts) != len(w.denied) || d.Reason != decide.WithinLimit {
			return false
		}
		w.now = w.now.Add(f.every)
		peeked := w.replay(stepSpec{hits: 0}, "id-0")
		if peeked == nil || len(peeked.Verdicts) != len(w.denied) {
			return false
		}
		switch remaining := peeked.Verdicts[t].Remaining; {
		case remaining < f.chunk:
			f.hits = remaining + 1
			return true
		case remaining < fewest:
			fewest, since = remaining, w.now
		case w.now.Sub(since) > plateau:
			return false
		}
	}
	return false
}

// aligned returns a start for a test of limit t: the beginning of a window, if windows begin at
// fixed times.
func (g *generator) aligned(rule *descriptors.Rule, t int, entries []descriptors.Entry) time.Time {
	limit := rule.Limits[t].Limit
	w := g.newStepWriter(rule, entries, defaultStart)
	d := w.replay(stepSpec{hits: 1}, "id-0")
	if limit.Drains() || d == nil || len(d.Verdicts) != len(rule.Limits) || !d.Verdicts[t].Allowed {
		return defaultStart
	}
	if reset := d.Verdicts[t].ResetAfter; reset < limit.Window() {
		return defaultStart.Add(reset)
	}
	return defaultStart
}
