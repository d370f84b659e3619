package shadow

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// maxKeys is the number of keys that each list of a diff counts.
const maxKeys = 1000

// A candidate holds the rules of a shadow file, their counters and the comparison. Only one
// goroutine calls compare.
type candidate struct {
	rules   *descriptors.Rules
	loaded  time.Time
	memory  *memstore.Store
	decider *decide.Decider
	now     time.Time     // the last request's time, but not before loaded
	result  decide.Result // the last request's decisions
	denials denials       // the limits that denied the last request
	seed    maphash.Seed
	dropped atomic.Int64

	mu   sync.Mutex
	seen int64 // requests since loaded
	diff diff
}

// A diff counts the differences between the decisions of the candidate and of the rules in force.
type diff struct {
	since                     time.Time
	version                   string // the version of the rules in force
	counts                    api.ShadowRequests
	limits                    map[limitName]*limitCounts
	newlyDenied, newlyAllowed *spacesaving.Sketch[keyDenial]
}

type limitCounts struct {
	newlyDenied, newlyAllowed, bothDenied, shadowed int64
	limit                                           *descriptors.RateLimit
}

func newCandidate(rules *descriptors.Rules, o *Options, now time.Time) *candidate {
	c := &candidate{rules: rules, loaded: now, now: now, seed: maphash.MakeSeed()}
	monotonic := func() time.Time { return c.loaded.Add(c.now.Sub(c.loaded)) } // as the memory store of the rules in force
	c.memory = memstore.New(memstore.Options{MaxBytes: o.MaxBytes, Now: monotonic})
	var store limiters.Store = c.memory
	if o.wrap != nil {
		store = o.wrap(store)
	}
	c.decider = decide.New(func() *descriptors.Rules { return rules }, store, o.Decide)
	c.diff = newDiff(now, "")
	return c
}

func newDiff(since time.Time, version string) diff {
	return diff{
		since: since, version: version, limits: map[limitName]*limitCounts{},
		newlyDenied: spacesaving.New[keyDenial](maxKeys), newlyAllowed: spacesaving.New[keyDenial](maxKeys),
	}
}

// compare decides a copy and counts the difference.
func (c *candidate) compare(ctx context.Context, r *requestCopy) {
	if r.at.After(c.now) {
		c.now = r.at
	}
	err := c.decider.Decide(ctx, &r.request, &c.result)
	bothDecided := r.byStore && err == nil && decidedByStore(&c.result)
	c.denials.reset()
	c.denials.read(&c.result)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if c.diff.version != r.version { // the candidate keeps its counters
		since := r.at
		if c.diff.version == "" {
			since = c.loaded
		}
		c.diff = newDiff(since, r.version)
	}
	if bothDecided {
		c.count(r)
	} else {
		c.diff.counts.Undecided++
	}
}

func (c *candidate) count(r *requestCopy) {
	d, live, proposed := &c.diff, &r.inForce, &c.denials
	switch {
	case live.denied && proposed.denied:
		d.counts.BothDenied++
	case live.denied:
		d.counts.NewlyAllowed++
	case proposed.denied:
		d.counts.NewlyDenied++
	default:
		d.counts.BothAllowed++
	}
	for i := range proposed.limits {
		denial := &proposed.limits[i]
		row := d.row(denial)
		row.limit = denial.rateLimit
		switch {
		case denial.shadow:
			row.shadowed++
		case live.denied:
			row.bothDenied++
		default:
			row.newlyDenied++
			c.add(d.newlyDenied, denial)
		}
	}
	if proposed.denied {
		return
	}
	for i := range live.limits {
		denial := &live.limits[i]
		if !denial.shadow {
			d.row(denial).newlyAllowed++
			c.add(d.newlyAllowed, denial)
		}
	}
}

// add counts a request for its key. A denial because of a lease id has no key.
func (c *candidate) add(to *spacesaving.Sketch[keyDenial], denial *keyDenial) {
	if denial.key != "" {
		to.Add(maphash.String(c.seed, denial.key), *denial, 1)
	}
}

// row returns the counts of a denial's limit.
func (d *diff) row(denial *keyDenial) *limitCounts {
	found := d.limits[denial.limitName]
	if found == nil {
		found = &limitCounts{limit: denial.rateLimit}
		d.limits[denial.limitName] = found
	}
	return found
}
