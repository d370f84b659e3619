package shadow

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// Stats are the counts of a Comparison since its start, and the size of the counters.
type Stats struct {
	Dropped           int64 // requests that the candidate did not decide, because the queue was full
	Panics            int64
	Queued            int64
	Keys, Bytes       int64
	Evicted, Rejected int64 // keys evicted too early, and operations without room
}

// Stats returns the counts.
func (c *Comparison) Stats() Stats {
	stats := Stats{Dropped: c.dropped.Load(), Panics: c.panics.Load(), Queued: int64(len(c.queue))}
	if current := c.current.Load(); current != nil {
		m := current.memory.Stats()
		stats.Keys, stats.Bytes, stats.Evicted, stats.Rejected = m.Keys, m.Bytes, m.Evicted, m.Rejected
	}
	return stats
}

// Report returns the diff, without the fields about the shadow file and the replica. The parameters
// bound the lengths of its lists.
func (c *Comparison) Report(limits, keys int) api.ShadowReport {
	none := api.DiffKeys{Worst: []api.DiffKey{}}
	stats := c.Stats()
	r := api.ShadowReport{
		Evicted: stats.Evicted + stats.Rejected, Panics: stats.Panics,
		Limits: []api.LimitDiff{}, NewlyDeniedKeys: none, NewlyAllowedKeys: none,
	}
	current := c.current.Load()
	if current == nil {
		return r
	}
	r.Running, r.CandidateVersion, r.LoadedAt = true, current.rules.Version(), &current.loaded
	current.mu.Lock()
	defer current.mu.Unlock()
	d := &current.diff
	since := d.since // a copy, because d changes after the lock
	r.RulesVersion, r.Since, r.Requests, r.LimitsTotal = d.version, &since, d.counts, len(d.limits)
	r.Requests.Compared = d.counts.BothAllowed + d.counts.BothDenied + d.counts.NewlyDenied + d.counts.NewlyAllowed
	r.Requests.Dropped = current.dropped.Load()
	if all := r.Requests.Dropped + current.seen; all > 0 {
		r.DroppedShare = float64(r.Requests.Dropped) / float64(all)
	}
	now := time.Now()
	for id, n := range d.limits {
		r.Limits = append(r.Limits, n.report(id, current.loaded, now))
	}
	slices.SortFunc(r.Limits, func(a, b api.LimitDiff) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied, a.NewlyDenied), cmp.Compare(b.NewlyAllowed, a.NewlyAllowed),
			cmp.Compare(b.BothDenied, a.BothDenied),
			cmp.Compare(b.Shadowed, a.Shadowed), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Limit, b.Limit))
	})
	r.Limits = r.Limits[:min(limits, len(r.Limits))]
	r.NewlyDeniedKeys, r.NewlyAllowedKeys = c.worstKeys(d.newlyDenied, keys), c.worstKeys(d.newlyAllowed, keys)
	return r
}

func (n *limitCounts) report(id limitName, loaded, now time.Time) api.LimitDiff {
	l := api.LimitDiff{
		Domain: id.domain, Rule: id.rule, Limit: id.label, NewlyDenied: n.newlyDenied, NewlyAllowed: n.newlyAllowed, BothDenied: n.bothDenied,
		Shadowed: n.shadowed, Warm: true,
	}
	if n.limit != nil {
		l.Algorithm = n.limit.Algorithm()
		l.Warm = !now.Before(loaded.Add(n.limit.Window()))
	}
	return l
}

// worstKeys returns the n keys of a list with the most requests.
func (c *Comparison) worstKeys(sketch *spacesaving.Sketch[keyDenial], n int) api.DiffKeys {
	list := sketch.List()
	// A key that has replaced another has an error.
	replaced := slices.ContainsFunc(list.Items, func(item spacesaving.Item[keyDenial]) bool { return item.Error > 0 })
	found := api.DiffKeys{Keys: len(list.Items), Exact: !replaced, Worst: []api.DiffKey{}}
	for _, item := range spacesaving.Top(n, list) {
		k := api.DiffKey{
			Domain: item.Value.domain, Rule: item.Value.rule, Limit: item.Value.label, Key: []explain.Entry{},
			KeyHash: descriptors.KeyHash(c.options.KeyHashSecret, item.Value.key), Requests: int64(item.Count), Error: int64(item.Error),
		}
		if len(c.options.KeyHashSecret) == 0 {
			_, entries, _ := descriptors.ParseKey(item.Value.key)
			k.Key = explain.EntriesOf(entries)
		}
		found.Worst = append(found.Worst, k)
	}
	return found
}
