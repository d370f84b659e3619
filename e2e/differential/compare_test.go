package differential

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxExcepted is the largest share of requests that exceptions about counters may discard.
const maxExcepted = 0.35

// minLateness is the least tolerance for a cached denial. Weir's deny cache remembers a denial too
// long by the duration of the call that was denied, and reports a wait that is too long by it. So
// the tolerance grows with the slowest recent call.
const minLateness = 50 * time.Millisecond

// maxReported is the number of differences that a run reports.
const maxReported = 3

// A comparison sends the same requests to both sides, one after another.
type comparison struct {
	theirs, ours *side
	settings     settings

	// By the name of a counter in envoyproxy/ratelimit:
	lost map[string]string // the reason why the two sides may count differently
	unit map[string]string // the unit of the first request
	full map[string]uint32 // the limit that the counter was over, so that their local cache holds it

	past                              map[string][]string // earlier requests by counter, for the report of a difference
	sent, turned, excepted, different int
	used                              map[string]int // uses of each exception
	slowest                           time.Duration  // the longest recent call
	slowUntil                         time.Time      // slowest counts until then
	overs, errors, limited            int
}

func newComparison(theirs, ours *side, s settings) *comparison {
	return &comparison{
		theirs: theirs, ours: ours, settings: s,
		lost: map[string]string{}, unit: map[string]string{}, full: map[string]uint32{},
		past: map[string][]string{}, used: map[string]int{},
	}
}

// A pair is one request, both answers, and the time of the calls.
type pair struct {
	request      *request
	theirs, ours answer
	from, to     time.Time
	late         time.Time // a cached denial of Weir may be as old
	settings     settings
}

func (c *comparison) ask(ctx context.Context, r *request) pair {
	p := pair{request: r, settings: c.settings}
	ours := make(chan answer, 1)
	p.from = time.Now()
	go func() { ours <- c.ours.ask(ctx, r) }()
	p.theirs = c.theirs.ask(ctx, r)
	p.ours = <-ours
	p.to = time.Now()
	if took := p.to.Sub(p.from); took > c.slowest || p.to.After(c.slowUntil) {
		// The deny cache remembers a denial for one second, and its renewals.
		c.slowest, c.slowUntil = took, p.to.Add(3*time.Second)
	}
	p.late = p.from.Add(-minLateness - c.slowest)
	return p
}

// counters returns, per descriptor, the name of its counter in envoyproxy/ratelimit, or "" without
// one. The name is the text of the key in the window at the given time. A shared counter has the
// name of its rule instead of the text.
func (p *pair) counters(at time.Time) []string {
	names := make([]string, len(p.request.GetDescriptors()))
	for i, s := range p.theirs.response.GetStatuses() {
		l := s.GetCurrentLimit()
		if l == nil {
			continue
		}
		text := entriesText(p.request.GetDescriptors()[i])
		if strings.Contains(l.GetName(), shareName) {
			text = l.GetName() + "_" + l.GetUnit().String()
		}
		window := seconds[l.GetUnit()]
		names[i] = fmt.Sprint(p.request.GetDomain(), "_", text, at.Unix()/window*window)
	}
	return names
}

const day = 24 * 60 * 60

var seconds = map[ratelimitv3.RateLimitResponse_RateLimit_Unit]int64{
	ratelimitv3.RateLimitResponse_RateLimit_SECOND: 1,
	ratelimitv3.RateLimitResponse_RateLimit_MINUTE: 60,
	ratelimitv3.RateLimitResponse_RateLimit_HOUR:   60 * 60,
	ratelimitv3.RateLimitResponse_RateLimit_DAY:    day,
	ratelimitv3.RateLimitResponse_RateLimit_WEEK:   7 * day,
	ratelimitv3.RateLimitResponse_RateLimit_MONTH:  30 * day,
	ratelimitv3.RateLimitResponse_RateLimit_YEAR:   365 * day,
}

// compare sends one request and reports a difference.
func (c *comparison) compare(t *testing.T, r *request) {
	t.Helper()
	p := c.ask(t.Context(), r)
	c.sent++
	before, after := p.counters(p.from), p.counters(p.to)
	why := c.drop(&p, before, after)
	for i, name := range after {
		if name != "" {
			c.past[name] = append(c.past[name], fmt.Sprintf("%v [%d] -> %s", p.request, i, p.theirs.brief()))
		}
	}
	switch {
	// The window of a cached denial may have ended, too.
	case why == windowEnded || !slices.Equal(p.counters(p.late), after):
		c.turned++
		return
	case why != "":
		c.excepted++
		return
	}
	switch {
	case p.theirs.err != nil:
		c.errors++
	case p.theirs.response.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT:
		c.overs++
	}
	for _, name := range after {
		if name != "" {
			c.limited++
			break
		}
	}
	if same, used := agree(&p); same {
		for _, name := range used {
			c.used[name]++
		}
		return
	}
	c.different++
	if c.different <= maxReported {
		c.report(t, &p, after)
	}
}

// drop records the counters on which the two sides may differ from now on. It returns the reason
// not to compare p, or "".
func (c *comparison) drop(p *pair, before, after []string) (why string) {
	seen := map[string]bool{}
	for i, name := range after {
		if name == "" {
			continue
		}
		l := p.theirs.response.GetStatuses()[i].GetCurrentLimit()
		if before[i] != name {
			// One side may have counted in the previous window.
			c.lost[name] = windowEnded
		}
		unit := l.GetUnit().String()
		if first, known := c.unit[name]; known && first != unit {
			c.lost[name] = unitNotInKey
		} else {
			c.unit[name] = unit
		}
		if c.settings.cached {
			if max, known := c.full[name]; known && max < l.GetRequestsPerUnit() {
				c.lost[name] = cachedOverrides
			}
			s := p.theirs.response.GetStatuses()[i]
			// A rule in shadow mode does not report that it is over its limit.
			hidden := strings.Contains(l.GetName(), shadowName) && s.GetLimitRemaining() == 0
			if _, known := c.full[name]; !known && (hidden || s.GetCode() == over || s.GetDurationUntilReset() == nil) {
				c.full[name] = l.GetRequestsPerUnit()
			}
		}
		if reason := c.lost[name]; reason != "" && why == "" {
			why = reason
			c.used[reason]++
		}
		if l.GetRequestsPerUnit() == 0 && c.lost[name] == "" {
			c.lost[name] = zeroCounts // from the next hit on: both sides deny this one, unless it is a peek
			if n := p.request.GetDescriptors()[i].GetHitsAddend(); seen[name] || n != nil && n.GetValue() == 0 {
				why = zeroCounts
			}
		}
		if c.settings.stops && seen[name] && why == "" {
			why = chargedTwice
			c.used[why]++
		}
		seen[name] = true
	}
	for name := range seen {
		// If a counter over its limit keeps the others from being charged, a doubt about one
		// counter is a doubt about all.
		if c.settings.stops && why != "" && c.lost[name] == "" {
			c.lost[name] = why
		}
	}
	return why
}

// agree reports whether the answers are equal after the exceptions, and which exceptions were
// needed.
func agree(p *pair) (same bool, used []string) {
	if p.theirs.String() == p.ours.String() {
		return true, nil
	}
	if p.theirs.err != nil || p.ours.err != nil {
		return false, nil
	}
	theirs, ours := proto.CloneOf(p.theirs.response), proto.CloneOf(p.ours.response)
	for _, e := range exceptions {
		if e.rewrite != nil && e.rewrite(p, theirs, ours) {
			used = append(used, e.name)
		}
	}
	p.alignResets(theirs, ours)
	return canonical(theirs) == canonical(ours), used
}

// alignResets replaces our resets, in seconds, by theirs if both are right. No window ended during
// the request, so two resets of a limit differ by the seconds that began between the two decisions.
func (p *pair) alignResets(theirs, ours *response) {
	began := p.to.Unix() - p.late.Unix()
	if began == 0 {
		return
	}
	near := func(a, b int64) bool { return a-b <= began && b-a <= began }
	for i, s := range ours.GetStatuses() {
		if i == len(theirs.GetStatuses()) {
			return
		}
		reset := theirs.Statuses[i].GetDurationUntilReset()
		if reset != nil && s.GetDurationUntilReset() != nil && near(reset.GetSeconds(), s.DurationUntilReset.GetSeconds()) {
			s.DurationUntilReset.Seconds = reset.GetSeconds()
		}
	}
	for i, h := range ours.GetResponseHeadersToAdd() {
		if i == len(theirs.GetResponseHeadersToAdd()) {
			return
		}
		reset := theirs.ResponseHeadersToAdd[i]
		theirSeconds, theirErr := strconv.ParseInt(reset.GetValue(), 10, 64)
		ourSeconds, ourErr := strconv.ParseInt(h.GetValue(), 10, 64)
		if strings.Contains(strings.ToLower(h.GetKey()), "reset") && theirErr == nil && ourErr == nil && near(theirSeconds, ourSeconds) {
			h.Value = reset.GetValue()
		}
	}
}

// report prints a difference and the earlier requests to the counters involved.
func (c *comparison) report(t *testing.T, p *pair, counters []string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "request %d at %v: domain %q, hits_addend %d\n", c.sent, p.from.Format(time.StampMicro),
		p.request.GetDomain(), p.request.GetHitsAddend())
	theirs, ours := p.theirs.response.GetStatuses(), p.ours.response.GetStatuses()
	for i, d := range p.request.GetDescriptors() {
		fmt.Fprintf(&b, "descriptors[%d] %v\n", i, d)
		if len(theirs) > i && len(ours) > i && !proto.Equal(theirs[i], ours[i]) {
			fmt.Fprintf(&b, "  envoyproxy/ratelimit: %v\n  weir:                 %v\n", theirs[i], ours[i])
		}
	}
	fmt.Fprintf(&b, "envoyproxy/ratelimit: %v %s\nweir:                 %v %s\n", p.theirs, errorText(p.theirs), p.ours, errorText(p.ours))
	for i, name := range counters {
		past := c.past[name]
		if name == "" || len(past) < 2 {
			continue
		}
		past = past[:len(past)-1]
		fmt.Fprintf(&b, "%[2]d earlier requests to the counter of descriptors[%[1]d]:\n", i, len(past))
		for _, line := range past[max(0, len(past)-8):] {
			b.WriteString("  " + line + "\n")
		}
	}
	t.Error(b.String())
}

func errorText(a answer) string {
	if a.err == nil {
		return ""
	}
	return status.Convert(a.err).String()
}

// counted has the uses of each exception in all runs.
var counted struct {
	sync.Mutex
	of map[string]int
}

func count(name string, n int) {
	counted.Lock()
	defer counted.Unlock()
	if counted.of == nil {
		counted.of = map[string]int{}
	}
	counted.of[name] += n
}

// sum logs the figures of a run, and fails it if it compared too little.
func (c *comparison) sum(t *testing.T) {
	t.Helper()
	share := func(n int) float64 { return float64(n) / float64(max(1, c.sent)) }
	t.Logf("%d requests: %d under a limit, %d over one, %d errors; discarded %.1f %% because a window ended, "+
		"%.1f %% by exceptions about counters", c.sent, c.limited, c.overs, c.errors,
		100*share(c.turned), 100*share(c.excepted))
	for name, n := range c.used {
		t.Logf("  %d by the exception %q", n, name)
		count(name, n)
	}
	if c.different > 0 {
		t.Errorf("%d answers differ (seed %d)", c.different, *seed)
	}
	if share(c.excepted) > maxExcepted {
		t.Errorf("too many were discarded: at most %.0f %% may be by exceptions", 100*maxExcepted)
	}
	compared := c.sent - c.turned
	if 3*c.limited < compared || 20*c.overs < compared && !c.settings.neverOver {
		t.Errorf("%d requests, but %d were under a limit and %d over one: the generator misses the rules",
			c.sent, c.limited, c.overs)
	}
}
