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

// A recorder sends requests to one rule, and writes each as a step that expects its outcome.
type recorder struct {
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

func (g *generator) newRecorder(rule *descriptors.Rule, entries []descriptors.Entry, start time.Time) *recorder {
	return &recorder{
		rule: rule, entries: entries, months: g.months, start: start, now: start, last: start, denied: make([]bool, len(rule.Limits)),
		replayer: replay.New(g.rules, replay.Options{Decide: decide.Options{CalendarMonths: g.months}}),
	}
}

// A stepSpec is a step to record.
type stepSpec struct {
	hits   int64
	refund bool
	after  time.Duration
	repeat int
	every  time.Duration
	id     string // the lease id; "" is a new one
	end    string // a further last entry, such as settle
}

// replay decides a request without recording it.
func (r *recorder) replay(s stepSpec, id string) *decide.Decision {
	request := decide.Request{Domain: r.rule.Domain,
		Descriptors: []decide.Descriptor{{Entries: r.entriesOf(s, id), Hits: s.hits, Refund: s.refund}}}
	if s.refund {
		request.Descriptors[0].Hits = -s.hits
	}
	if err := r.replayer.Decide(r.now, &request, &r.result); err != nil || len(r.result.Decisions) == 0 {
		return nil
	}
	d := &r.result.Decisions[0]
	for i := range d.Verdicts {
		if len(d.Verdicts) == len(r.denied) && !d.Verdicts[i].Allowed {
			r.denied[i] = true
		}
	}
	return d
}

func (r *recorder) entriesOf(s stepSpec, id string) []descriptors.Entry {
	entries := slices.Clone(r.entries)
	if r.rule.UsesLeases() {
		entries[len(entries)-1].Value = id
	}
	if s.end != "" {
		entries = append(entries, descriptors.Entry{Key: s.end, Value: "1"})
	}
	return entries
}

// send sends the requests of a step, records the step, and returns the last decision.
func (r *recorder) send(s stepSpec) *decide.Decision {
	r.now = r.now.Add(s.after)
	after, repeat := r.now.Sub(r.last), max(1, s.repeat)
	if s.id == "" {
		r.ids++
		s.id = fmt.Sprintf("id-%d", r.ids)
	}
	id := s.id
	var d *decide.Decision
	for i := range repeat {
		if repeat > 1 && r.rule.UsesLeases() {
			s.id, id = "id-"+number, fmt.Sprintf("id-%d", i+1)
		}
		if i > 0 {
			r.now = r.now.Add(s.every)
		}
		d = r.replay(s, id)
	}
	r.ids = max(r.ids, repeat)
	r.last = r.now
	if d != nil {
		r.record(s, after, repeat, d)
	}
	return d
}

// record writes a step.
func (r *recorder) record(s stepSpec, after time.Duration, repeat int, d *decide.Decision) {
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
	request := rulesyaml.Quoted(descriptors.EntriesText(r.entriesOf(s, s.id)))
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
	line("expect: %s", outcomeText(&r.result, d))
	r.steps = append(r.steps, b.String())
}

// deny records a test in which limit t of the rule denies a request.
func (g *generator) deny(rule *descriptors.Rule, t int, entries []descriptors.Entry) (*recorder, error) {
	limit := rule.Limits[t].Limit
	r := g.newRecorder(rule, entries, g.aligned(rule, t, entries))
	chunk := limit.Capacity()
	for i := range rule.Limits {
		chunk = min(chunk, rule.Limits[i].Capacity())
	}
	var d *decide.Decision
	switch {
	case limit.Capacity() == 0:
		d = r.send(stepSpec{hits: 1})
	case chunk == 0:
		return nil, errors.New("another limit of the rule denies every request")
	case chunk == limit.Capacity():
		if limit.Capacity() <= maxUnrolled && !rule.UsesLeases() {
			r.send(stepSpec{hits: 1, repeat: int(limit.Capacity())})
		} else {
			r.send(stepSpec{hits: limit.Capacity()})
		}
		d = r.send(stepSpec{hits: 1})
	default:
		f, err := g.fill(r, t, chunk)
		if err != nil {
			return nil, err
		}
		r.send(stepSpec{hits: f.chunk, repeat: f.chunks, every: f.every})
		d = r.send(stepSpec{hits: f.hits, after: f.every})
	}
	if d == nil || !r.denied[t] {
		return nil, errors.New("the smaller limits of the rule deny first")
	}
	r.recordRecovery(t, d)
	return r, nil
}

// recordRecovery records the outcome after a denial.
func (r *recorder) recordRecovery(t int, d *decide.Decision) {
	limit := r.rule.Limits[t].Limit
	switch {
	case d.Reason != decide.OverLimit:
		return
	case limit.IsConcurrency():
		r.send(stepSpec{hits: 0, refund: true, id: "id-1"})
		r.send(stepSpec{hits: 1})
	case limit.Reserves() && len(r.rule.Limits) == 1:
		r.send(stepSpec{hits: 0, id: "id-1", end: "settle"})
		r.send(stepSpec{hits: 1})
	default:
		_, v := d.Deciding()
		r.send(stepSpec{hits: 1, after: v.RetryAfter})
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
func (g *generator) fill(r *recorder, t int, smallest int64) (filling, error) {
	for _, chunk := range slices.Compact([]int64{smallest, 1}) {
		f := filling{chunk: chunk, every: pace(r.rule, t, chunk)}
		if g.newRecorder(r.rule, r.entries, r.start).try(&f, t) {
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
func (r *recorder) try(f *filling, t int) bool {
	limit := r.rule.Limits[t].Limit
	plateau, fewest, since := 2*max(limit.Window(), limit.LeaseTTL()), int64(math.MaxInt64), r.now
	for f.chunks < maxChunks && r.now.Sub(r.start) < maxOffset/2 {
		f.chunks++
		d := r.replay(stepSpec{hits: f.chunk}, fmt.Sprintf("id-%d", f.chunks))
		if d == nil || len(d.Verdicts) != len(r.denied) || d.Reason != decide.WithinLimit {
			return false
		}
		r.now = r.now.Add(f.every)
		peeked := r.replay(stepSpec{hits: 0}, "id-0")
		if peeked == nil || len(peeked.Verdicts) != len(r.denied) {
			return false
		}
		switch remaining := peeked.Verdicts[t].Remaining; {
		case remaining < f.chunk:
			f.hits = remaining + 1
			return true
		case remaining < fewest:
			fewest, since = remaining, r.now
		case r.now.Sub(since) > plateau:
			return false
		}
	}
	return false
}

// aligned returns a start for a test of limit t: the beginning of a window, if windows begin at
// fixed times.
func (g *generator) aligned(rule *descriptors.Rule, t int, entries []descriptors.Entry) time.Time {
	limit := rule.Limits[t].Limit
	r := g.newRecorder(rule, entries, defaultStart)
	d := r.replay(stepSpec{hits: 1}, "id-0")
	if limit.Drains() || d == nil || len(d.Verdicts) != len(rule.Limits) || !d.Verdicts[t].Allowed {
		return defaultStart
	}
	if reset := d.Verdicts[t].ResetAfter; reset < limit.Window() {
		return defaultStart.Add(reset)
	}
	return defaultStart
}
