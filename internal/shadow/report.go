package shadow

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/admin"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Counts are requests by their outcomes under the rules in force and under the candidate.
type Counts struct {
	BothAllowed, BothDenied int64
	NewlyDenied             int64 // only the candidate denies them
	NewlyAllowed            int64 // only the rules in force deny them
	// Undecided are requests that were not compared, because one of the stores could not decide them.
	Undecided int64
}

// Compared returns the number of requests that were compared.
func (c Counts) Compared() int64 {
	return c.BothAllowed + c.BothDenied + c.NewlyDenied + c.NewlyAllowed
}

// A Report is the state of a [Shadow].
type Report struct {
	Running      bool
	Version      string    // of the candidate
	RulesVersion string    // of the rules in force that the diff is about
	Loaded       time.Time // when the candidate began with empty counters
	Since        time.Time // of the counts
	Counts       Counts
	// Dropped and Seen are the requests that the candidate missed and saw since Loaded. With drops, its counters are too low.
	Dropped, Seen int64
	Limits        []admin.ShadowLimit // the most newly denied requests first
	LimitsTotal   int
	Unlisted      int64 // denials of limits beyond the first 10,000
	NewlyDenied   admin.ShadowKeys
	NewlyAllowed  admin.ShadowKeys
	Stats         Stats
}

// Stats are the counts of a Shadow since its start, and the size of the counters.
type Stats struct {
	Dropped           int64 // requests that the candidate did not decide, because the queue was full
	Panics            int64
	Queued            int64
	Keys, Bytes       int64
	Evicted, Rejected int64 // keys evicted too early, and hits without room
}

// Stats returns the counts.
func (s *Shadow) Stats() Stats {
	stats := Stats{Dropped: s.dropped.Load(), Panics: s.panics.Load(), Queued: int64(len(s.queue))}
	if c := s.current.Load(); c != nil {
		m := c.stats()
		stats.Keys, stats.Bytes, stats.Evicted, stats.Rejected = m.Keys, m.Bytes, m.Evicted, m.Rejected
	}
	return stats
}

// Report returns the diff. The parameters bound the lengths of its lists.
func (s *Shadow) Report(limits, keys int) Report {
	none := admin.ShadowKeys{Worst: []admin.ShadowKey{}}
	r := Report{Stats: s.Stats(), Limits: []admin.ShadowLimit{}, NewlyDenied: none, NewlyAllowed: none}
	c := s.current.Load()
	if c == nil {
		return r
	}
	r.Running, r.Version, r.Loaded = true, c.rules.Version(), c.loaded
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Dropped, r.Seen = c.dropped.Load(), c.seen
	d := &c.diff
	r.RulesVersion, r.Since, r.Counts, r.Unlisted, r.LimitsTotal = d.version, d.since, d.counts, d.unlisted, len(d.limits)
	now := time.Now()
	for id, n := range d.limits {
		r.Limits = append(r.Limits, n.report(id, c.loaded, now))
	}
	slices.SortFunc(r.Limits, func(a, b admin.ShadowLimit) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied, a.NewlyDenied), cmp.Compare(b.NewlyAllowed, a.NewlyAllowed), cmp.Compare(b.BothDenied, a.BothDenied),
			cmp.Compare(b.Shadowed, a.Shadowed), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Limit, b.Limit))
	})
	r.Limits = r.Limits[:min(limits, len(r.Limits))]
	r.NewlyDenied, r.NewlyAllowed = s.keys(d.denied, keys), s.keys(d.freed, keys)
	return r
}

func (n *limitCounts) report(id limitID, loaded, now time.Time) admin.ShadowLimit {
	l := admin.ShadowLimit{
		Domain: id.domain, Rule: id.rule, Limit: id.limit, NewlyDenied: n.newlyDenied, NewlyAllowed: n.newlyAllowed, BothDenied: n.both,
		Shadowed: n.shadowed, Warm: true,
	}
	if n.limit != nil {
		l.Algorithm = n.limit.Limit.Spec().Algorithm
		l.Warm = !now.Before(loaded.Add(n.limit.Limit.Window()))
	}
	return l
}

func (s *Shadow) keys(of *spacesaving.Sketch[denial], n int) admin.ShadowKeys {
	list := of.List()
	found := admin.ShadowKeys{Keys: len(list.Items), Exact: list.MaxError == 0 || len(list.Items) < maxKeys, Worst: []admin.ShadowKey{}}
	for _, item := range spacesaving.Top(n, list) {
		k := admin.ShadowKey{
			Domain: item.Value.domain, Rule: item.Value.rule, Limit: item.Value.limitID.limit, Key: []admin.Entry{},
			KeyHash: descriptors.KeyHash(s.options.Secret, item.Value.key), Requests: int64(item.Count), Error: int64(item.Error),
		}
		if len(s.options.Secret) == 0 {
			_, entries, _ := descriptors.ParseKey(item.Value.key)
			k.Key = admin.EntriesOf(entries)
		}
		found.Worst = append(found.Worst, k)
	}
	return found
}
