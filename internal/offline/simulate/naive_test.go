package simulate_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/offline/simulate"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/recording"
)

// lines is a LineReader.
type lines []recording.Line

func (l *lines) Next(into *recording.Line) error {
	if len(*l) == 0 {
		return io.EOF
	}
	*into, *l = (*l)[0], (*l)[1:]
	return nil
}

func run(t testing.TB, rules *descriptors.Rules, all []recording.Line, o simulate.Options) *simulate.Result {
	t.Helper()
	source := lines(all)
	r, err := simulate.Run(context.Background(), rules, &source, o)
	must.Succeed(t, err)
	return r
}

// A naiveLimit decides by the definition of its algorithm, in a way of its own: it keeps every hit
// of a key. It shares no code with pkg/limiters. A fixed window counts denied hits, the others do
// not.
type naiveLimit struct {
	algorithm   string
	max, window int64
	keys        map[string]*naiveKey
}

type naiveKey struct {
	counted          []naiveHit // hits that count
	admitted, demand []naiveHit
	requests, denied int64
	level, last      int64 // used by a funnel
}

type naiveHit struct{ at, n int64 }

func (l *naiveLimit) key(name string) *naiveKey {
	if l.keys[name] == nil {
		l.keys[name] = &naiveKey{}
	}
	return l.keys[name]
}

// used returns the usage of a key, in units of 1/window hits.
func (l *naiveLimit) used(k *naiveKey, at int64) int64 {
	switch l.algorithm {
	case "fixed_window", "sliding_log":
		sum := int64(0)
		for i := len(k.counted) - 1; i >= 0 && k.counted[i].at > at-l.window; i-- {
			if l.algorithm == "sliding_log" || k.counted[i].at/l.window == at/l.window {
				sum += k.counted[i].n
			}
		}
		return sum * l.window
	}
	return max(0, k.level-(at-k.last)*l.max) // a funnel leaks max hits in each window
}

func (l *naiveLimit) fits(name string, at, n int64) bool {
	used := l.used(l.key(name), at)
	if l.algorithm == "fixed_window" && n == 0 {
		return used <= l.max*l.window // a peek is denied over the limit
	}
	return used+max(n, 1)*l.window <= l.max*l.window
}

// wait returns the time until one hit fits.
func (l *naiveLimit) wait(name string, at int64) int64 {
	k := l.key(name)
	switch l.algorithm {
	case "fixed_window":
		return l.window - at%l.window
	case "sliding_log":
		for _, h := range k.counted {
			if end := h.at + l.window; end > at && l.fits(name, end, 1) {
				return end - at
			}
		}
	}
	over := l.used(k, at) + l.window - l.max*l.window
	return (over + l.max - 1) / l.max
}

// count counts a verdict on n hits. ok says that the limit allows them, all that the whole group
// does.
func (l *naiveLimit) count(name string, at, n int64, ok, all bool) {
	k := l.key(name)
	k.requests++
	if !ok {
		k.denied++
	}
	if n == 0 {
		return
	}
	k.demand = append(k.demand, naiveHit{at, n})
	if all {
		k.admitted = append(k.admitted, naiveHit{at, n})
	}
	if all || !ok && l.algorithm == "fixed_window" {
		k.level, k.last = l.used(k, at)+n*l.window, at // used by a funnel
		k.counted = append(k.counted, naiveHit{at, n})
	}
}

// burst returns the most hits in any span of one window.
func (l *naiveLimit) burst(hits []naiveHit) (most int64) {
	first, sum := 0, int64(0)
	for _, h := range hits {
		for sum += h.n; hits[first].at <= h.at-l.window; first++ {
			sum -= hits[first].n
		}
		most = max(most, sum)
	}
	return most
}

var algorithms = []string{"fixed_window", "sliding_log", "funnel"}

// randomLimits returns rules with the keys k0, k1…, and a naive limit for each limit, by key.
func randomLimits(random *rand.Rand) (text string, all [][]*naiveLimit) {
	units := []struct {
		name   string
		length time.Duration
	}{{"second", time.Second}, {"minute", time.Minute}}
	var b strings.Builder
	b.WriteString("domain: test\ndescriptors:\n")
	for i := range 6 {
		fmt.Fprintf(&b, "  - key: k%d\n    rate_limits:\n", i)
		var limits []*naiveLimit
		first := random.IntN(2)
		for j := range 1 + random.IntN(2) {
			unit, algorithm := units[(first+j)%2], algorithms[random.IntN(3)]
			limit := int64(1 + random.IntN(30))
			fmt.Fprintf(&b, "      - {name: n%d, unit: %s, requests_per_unit: %d, algorithm: %s}\n", j, unit.name, limit, algorithm)
			limits = append(limits, &naiveLimit{algorithm, limit, unit.length.Microseconds(), map[string]*naiveKey{}})
		}
		all = append(all, limits)
	}
	return b.String(), all
}

// randomLines returns n requests of one or two descriptors, each under the limits of a key, or of
// none. The lines come in bursts.
func randomLines(random *rand.Rand, n int) []recording.Line {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	var all []recording.Line
	for range n {
		switch random.IntN(20) {
		case 0:
			at = at.Add(time.Duration(random.IntN(2_000_000)) * time.Microsecond)
		case 1, 2, 3:
			at = at.Add(time.Duration(random.IntN(200_000)) * time.Microsecond)
		}
		r := decide.Request{Domain: "test"}
		for range 1 + random.IntN(2) {
			user := int(random.ExpFloat64() * 20)
			entries := []descriptors.Entry{{Key: fmt.Sprintf("k%d", random.IntN(7)), Value: fmt.Sprintf("user%d", user)}}
			r.Descriptors = append(r.Descriptors, decide.Descriptor{Entries: entries, Hits: int64(random.IntN(4))})
		}
		all = append(all, recording.Line{At: at, Request: r})
	}
	return all
}

// The counts of a simulation are those of a plain implementation of the three algorithms, on
// 120,000 random requests under random rules.
func TestCountsEqualNaiveImplementation(t *testing.T) {
	if testing.Short() {
		t.Skip("the naive implementation takes seconds, and minutes with the race detector: run without -short")
	}
	t.Parallel()
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 1))
		text, limits := randomLimits(random)
		all := randomLines(random, 30_000)
		result := run(t, rulesfiletest.Parse(t, text), all, simulate.Options{})
		alone := make([][][]*naiveLimit, len(limits)) // by rule, limit and algorithm
		for i := range limits {
			for _, l := range limits[i] {
				var each []*naiveLimit
				for _, algorithm := range algorithms {
					each = append(each, &naiveLimit{algorithm, l.max, l.window, map[string]*naiveKey{}})
				}
				alone[i] = append(alone[i], each)
			}
		}
		var denied, unmatched int64
		for _, line := range all {
			at, over, matched := line.At.UnixMicro(), false, false
			for _, d := range line.Request.Descriptors {
				rule := int(d.Entries[0].Key[1] - '0')
				if rule >= len(limits) {
					continue
				}
				matched = true
				all, ok := true, make([]bool, len(limits[rule]))
				for i, l := range limits[rule] {
					ok[i] = l.fits(d.Entries[0].Value, at, d.Hits)
					all = all && ok[i]
				}
				for i, l := range limits[rule] {
					l.count(d.Entries[0].Value, at, d.Hits, ok[i], all)
					for _, one := range alone[rule][i] {
						fits := one.fits(d.Entries[0].Value, at, d.Hits)
						one.count(d.Entries[0].Value, at, d.Hits, fits, fits)
					}
				}
				over = over || !all
			}
			if over {
				denied++
			}
			if !matched {
				unmatched++
			}
		}
		n := int64(len(all))
		if result.Requests != n || result.Denied != denied || result.Allowed != n-denied || result.Unmatched != unmatched {
			t.Errorf("seed %d: %d requests, %d allowed, %d denied, %d unmatched, want %d, %d, %d, %d",
				seed, result.Requests, result.Allowed, result.Denied, result.Unmatched, n, n-denied, denied, unmatched)
		}
		i := 0
		for rule := range limits {
			for j, l := range limits[rule] {
				compareLimit(t, fmt.Sprintf("seed %d, limit %d", seed, i), result.Limits[i], l, alone[rule][j])
				i++
			}
		}
	}
}

func compareLimit(t *testing.T, name string, got *simulate.LimitResult, l *naiveLimit, alone []*naiveLimit) {
	t.Helper()
	type counts struct{ requests, denied, keys, keysDenied int64 }
	sum := func(l *naiveLimit) (c counts) {
		for _, k := range l.keys {
			c.requests += k.requests
			c.denied += k.denied
			c.keys++
			if k.denied > 0 {
				c.keysDenied++
			}
		}
		return c
	}
	if have, want := (counts{got.Requests, got.Denied, got.Keys, got.KeysDenied}), sum(l); have != want {
		t.Errorf("%s: %+v, want %+v", name, have, want)
	}
	for i, one := range alone {
		a, want := got.Comparison.Algorithms[i], sum(one)
		burst := int64(0)
		for _, k := range one.keys {
			burst = max(burst, one.burst(k.admitted))
		}
		if a.Denied != want.denied || a.KeysDenied != want.keysDenied || a.Burst != burst || a.Own != (one.algorithm == l.algorithm) {
			t.Errorf("%s, %s alone: %+v, want %+v, a burst of %d", name, one.algorithm, a, want, burst)
		}
	}
	var demand []int64
	for _, k := range l.keys {
		demand = append(demand, l.burst(k.demand))
	}
	slices.Sort(demand)
	if q := got.Usage.Demand; q.Min != demand[0] || q.Max != demand[len(demand)-1] || q.P50 != demand[(len(demand)+1)/2-1] {
		t.Errorf("%s: demand %+v, want %v", name, q, demand)
	}
	allowed, denied := int64(0), int64(0)
	for i := range got.AllowedOverTime {
		allowed, denied = allowed+got.AllowedOverTime[i], denied+got.DeniedOverTime[i]
	}
	if allowed != got.Requests-got.Denied || denied != got.Denied {
		t.Errorf("%s: over time %d allowed and %d denied, want %d and %d", name, allowed, denied, got.Requests-got.Denied, got.Denied)
	}
}

// The client models send the retries that a plain implementation sends.
func TestClientModelsEqualNaiveImplementation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 2))
		algorithm := algorithms[seed%3]
		limit := int64(1 + random.IntN(5))
		text := fmt.Sprintf("domain: test\ndescriptors:\n  - key: k\n    rate_limit: {unit: minute, requests_per_unit: %d, algorithm: %s}\n", limit, algorithm)
		at, all := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC), []recording.Line{}
		for range 2000 {
			at = at.Add(time.Duration(random.IntN(2_000_000)) * time.Microsecond)
			entries := []descriptors.Entry{{Key: "k", Value: fmt.Sprintf("user%d", random.IntN(60))}}
			all = append(all, recording.Line{At: at, Request: decide.Request{Domain: "test", Descriptors: []decide.Descriptor{{Entries: entries, Hits: 1}}}})
		}
		result := run(t, rulesfiletest.Parse(t, text), all, simulate.Options{Clients: models})
		for i, model := range models {
			want := naiveClient(all, model, &naiveLimit{algorithm, limit, time.Minute.Microseconds(), map[string]*naiveKey{}})
			if got := result.Clients[i]; got != want {
				t.Errorf("seed %d, %s, %s:\n%+v, want\n%+v", seed, algorithm, model, got, want)
			}
		}
	}
}

// naiveClient sends requests by a client model. The retries that wait are a list without order.
func naiveClient(all []recording.Line, model simulate.Model, l *naiveLimit) simulate.Client {
	type attempt struct {
		at   int64
		key  string
		sent int
	}
	c := simulate.Client{Model: model}
	var waiting []attempt
	send := func(a attempt) {
		c.Attempts++
		ok := l.fits(a.key, a.at, 1)
		l.count(a.key, a.at, 1, ok, ok)
		switch {
		case ok:
			c.Allowed++
			if a.sent > 0 {
				c.Recovered++
			}
			return
		case model == simulate.Obey && a.sent < 3:
			wait := (l.wait(a.key, a.at) + 999_999) / 1_000_000 * 1_000_000
			waiting = append(waiting, attempt{a.at + wait, a.key, a.sent + 1})
		case model == simulate.Hammer && a.sent < 5:
			waiting = append(waiting, attempt{a.at + 1_000_000, a.key, a.sent + 1})
		default:
			c.GaveUp++
		}
		c.Denied++
	}
	for _, line := range all {
		at := line.At.UnixMicro()
		for {
			next := -1
			for i := range waiting {
				if waiting[i].at <= at && (next < 0 || waiting[i].at < waiting[next].at) {
					next = i
				}
			}
			if next < 0 {
				break
			}
			a := waiting[next]
			waiting = slices.Delete(waiting, next, next+1)
			c.Retries++
			send(a)
		}
		send(attempt{at, line.Request.Descriptors[0].Entries[0].Value, 0})
	}
	c.Waiting = int64(len(waiting))
	return c
}
