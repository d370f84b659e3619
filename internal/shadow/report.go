package shadow

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rls/weir/internal/spacesaving"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

// Counts are requests by their decisions under the rules in force and under the candidate.
type Counts struct {
	BothAllowed  int64 `json:"both_allowed" doc:"Requests that both allow."`
	BothDenied   int64 `json:"both_denied" doc:"Requests that both deny."`
	NewlyDenied  int64 `json:"newly_denied" doc:"Requests that only the candidate denies."`
	NewlyAllowed int64 `json:"newly_allowed" doc:"Requests that only the rules in force deny."`
	Undecided    int64 `json:"undecided" doc:"Requests that were not compared, because the store failed, or the candidate had no room."`
	Dropped      int64 `json:"dropped" doc:"Requests since loaded_at that the candidate missed, because its queue was full."`
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
	Counts
	Seen int64 // requests since Loaded, without the Dropped ones
	Denials
	Stats Stats
}

// Denials are the limits and the keys of denied requests.
type Denials struct {
	Limits           []LimitDiff `json:"limits" nullable:"false" doc:"The limits that denied requests, the most newly denied requests first."`
	LimitsTotal      int         `json:"limits_total" doc:"How many limits denied requests."`
	NewlyDeniedKeys  DiffKeys    `json:"newly_denied_keys" doc:"The keys of the newly denied requests."`
	NewlyAllowedKeys DiffKeys    `json:"newly_allowed_keys" doc:"The keys of the newly allowed requests."`
}

// A LimitDiff is a limit that denied requests.
type LimitDiff struct {
	Domain       string `json:"domain" doc:"The domain of the rule."`
	Rule         string `json:"rule" doc:"The path of the rule; empty for a limit in the request without a rule."`
	Limit        string `json:"limit" doc:"The name of the limit, or its index in the rule."`
	Algorithm    string `json:"algorithm" doc:"The algorithm of the limit; empty if no limit is known."`
	NewlyDenied  int64  `json:"newly_denied" doc:"Requests that only the candidate denies, by this limit."`
	NewlyAllowed int64  `json:"newly_allowed" doc:"Requests that only the rules in force deny, by this limit."`
	BothDenied   int64  `json:"both_denied" doc:"Requests that both deny, the candidate by this limit."`
	Shadowed     int64  `json:"shadowed" doc:"Requests that this limit of the candidate would deny without its shadow mode."`
	Warm         bool   `json:"warm" doc:"False until the candidate has counted for one window of the limit. Until then it denies too little."`
}

// DiffKeys are the keys of newly denied or newly allowed requests.
type DiffKeys struct {
	Keys  int       `json:"keys" doc:"The number of keys."`
	Exact bool      `json:"exact" doc:"False if there are more keys than that."`
	Worst []DiffKey `json:"worst" nullable:"false" doc:"The keys with the most requests, first the most."`
}

// A DiffKey is a key with the number of its requests.
type DiffKey struct {
	Domain   string          `json:"domain" doc:"The domain of the key."`
	Rule     string          `json:"rule" doc:"The path of the rule."`
	Limit    string          `json:"limit" doc:"The limit that denied the first of the requests."`
	Key      []explain.Entry `json:"key" nullable:"false" doc:"The entries of the descriptor; empty where KEY_HASH_SECRET hides keys."`
	KeyHash  string          `json:"key_hash" doc:"The hash of the key: 16 hexadecimal digits."`
	Requests int64           `json:"requests" doc:"The estimated requests: at least the true number."`
	Error    int64           `json:"error" doc:"By how much requests may be too large."`
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
	none := DiffKeys{Worst: []DiffKey{}}
	r := Report{Stats: s.Stats(), Denials: Denials{Limits: []LimitDiff{}, NewlyDeniedKeys: none, NewlyAllowedKeys: none}}
	c := s.current.Load()
	if c == nil {
		return r
	}
	r.Running, r.Version, r.Loaded = true, c.rules.Version(), c.loaded
	c.mu.Lock()
	defer c.mu.Unlock()
	d := &c.diff
	r.RulesVersion, r.Since, r.Counts, r.LimitsTotal = d.version, d.since, d.counts, len(d.limits)
	r.Dropped, r.Seen = c.dropped.Load(), c.seen
	now := time.Now()
	for id, n := range d.limits {
		r.Limits = append(r.Limits, n.report(id, c.loaded, now))
	}
	slices.SortFunc(r.Limits, func(a, b LimitDiff) int {
		return cmp.Or(cmp.Compare(b.NewlyDenied, a.NewlyDenied), cmp.Compare(b.NewlyAllowed, a.NewlyAllowed),
			cmp.Compare(b.BothDenied, a.BothDenied),
			cmp.Compare(b.Shadowed, a.Shadowed), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Limit, b.Limit))
	})
	r.Limits = r.Limits[:min(limits, len(r.Limits))]
	r.NewlyDeniedKeys, r.NewlyAllowedKeys = s.keys(d.denied, keys), s.keys(d.freed, keys)
	return r
}

func (n *limitCounts) report(id limitID, loaded, now time.Time) LimitDiff {
	l := LimitDiff{
		Domain: id.domain, Rule: id.rule, Limit: id.limit, NewlyDenied: n.newlyDenied, NewlyAllowed: n.newlyAllowed, BothDenied: n.both,
		Shadowed: n.shadowed, Warm: true,
	}
	if n.limit != nil {
		l.Algorithm = n.limit.Compiled.Spec().Algorithm
		l.Warm = !now.Before(loaded.Add(n.limit.Compiled.Window()))
	}
	return l
}

func (s *Shadow) keys(sketch *spacesaving.Sketch[denyingLimit], n int) DiffKeys {
	list := sketch.List()
	found := DiffKeys{Keys: len(list.Items), Exact: list.MaxError == 0 || len(list.Items) < maxKeys, Worst: []DiffKey{}}
	for _, item := range spacesaving.Top(n, list) {
		k := DiffKey{
			Domain: item.Value.domain, Rule: item.Value.rule, Limit: item.Value.limitID.limit, Key: []explain.Entry{},
			KeyHash: descriptors.KeyHash(s.options.Secret, item.Value.key), Requests: int64(item.Count), Error: int64(item.Error),
		}
		if len(s.options.Secret) == 0 {
			_, entries, _ := descriptors.ParseKey(item.Value.key)
			k.Key = explain.EntriesOf(entries)
		}
		found.Worst = append(found.Worst, k)
	}
	return found
}
