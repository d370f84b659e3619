package rulesdiff

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// A Report is the result of a [Comparison]. Its JSON is a contract: fields may be added.
type Report struct {
	Requests int64      `json:"requests"`
	From     *time.Time `json:"from"` // the time of the first request; nil without requests
	To       *time.Time `json:"to"`
	Old      Side       `json:"old"`
	New      Side       `json:"new"`
	Counts
	Keys int64 `json:"keys"` // under the new rules
	// KeysExact reports that every key is in the counts of keys. Otherwise there were more than
	// Options.MaxKeys keys, and the counts are lower bounds.
	KeysExact bool    `json:"keys_exact"`
	Rules     Changes `json:"rules"`
	// Limits are the limits that changed a verdict, and those that were added, removed or changed.
	// The limit with the most newly denied keys comes first.
	Limits []*Limit `json:"limits"`
	// CannotMatch are new rules whose effect is unknown, because they match values of which the
	// recording has only hashes.
	CannotMatch []recording.UnmatchableRule `json:"cannot_match"`
	// Skipped are the lines of the recordings that were not compared. The caller sets Skipped.
	Skipped []recording.FileSkipCount `json:"skipped"`
}

// skippedLines returns the number of lines that were not compared. A file that cannot be read to
// its end counts as one.
func (r *Report) skippedLines() (n int64) {
	for _, s := range r.Skipped {
		n += max(1, s.Lines)
	}
	return n
}

// Counts holds the number of verdicts that differ, of all requests or of one limit.
type Counts struct {
	NewlyDeniedRequests  int64 `json:"newly_denied_requests"`
	NewlyDeniedKeys      int64 `json:"newly_denied_keys"`
	NewlyAllowedRequests int64 `json:"newly_allowed_requests"`
	NewlyAllowedKeys     int64 `json:"newly_allowed_keys"`
	// These count all keys with newly denied or newly allowed requests, including keys that both
	// sets of rules deny at times.
	KeysWithNewlyDenied  int64 `json:"keys_with_newly_denied_requests"`
	KeysWithNewlyAllowed int64 `json:"keys_with_newly_allowed_requests"`
}

// A Side is the outcome of one set of rules.
type Side struct {
	Version   string `json:"version"` // the version of the rules
	Allowed   int64  `json:"allowed"`
	Denied    int64  `json:"denied"`
	Unmatched int64  `json:"unmatched"` // requests without a rule, which are allowed
	Invalid   int64  `json:"invalid"`   // requests without a verdict, for example because too many limits match
	// EvictedKeys are counters that were lost because memory was full. The other counts are exact
	// only if it is 0.
	EvictedKeys int64 `json:"evicted_keys"`
}

// Changes counts the rules that differ.
type Changes struct {
	Added    int `json:"added"`
	Removed  int `json:"removed"`
	Modified int `json:"modified"`
}

// The states of a [Limit].
const (
	Same    = "same"
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// A Limit is a limit of either set of rules. The new limit counts newly denied requests and keys,
// the old limit newly allowed ones. A request that several limits deny counts for each of them.
type Limit struct {
	Domain string `json:"domain"`
	Path   string `json:"path"`
	Name   string `json:"name"`
	Status string `json:"status"` // same, added, removed or changed
	Old    string `json:"old"`    // such as "5 per minute, fixed_window"; empty if it was added
	New    string `json:"new"`    // empty if it was removed
	Source string `json:"source"` // file and line, in the new rules if they have the limit
	Counts
	Requests int64 `json:"requests"` // requests that the limit decided under the new rules, or under the old rules if it was removed
	Keys     int64 `json:"keys"`     // keys of these requests
	// WorstDenied and WorstAllowed are the keys with the most newly denied and newly allowed
	// requests, at most Options.Worst.
	WorstDenied  []Key `json:"worst_denied"`
	WorstAllowed []Key `json:"worst_allowed"`
}

// A Key is a key with changed verdicts.
type Key struct {
	Key      string `json:"key"`      // such as user_id=42,action=login
	Requests int64  `json:"requests"` // requests with the key
	Changed  int64  `json:"changed"`  // requests that are newly denied, or newly allowed
	// New reports that the old rules deny no request of a newly denied key, or the new rules none
	// of a newly allowed key.
	New bool `json:"new"`
}

// Differs reports whether a verdict differs, or a new rule could not be judged.
func (r *Report) Differs() bool {
	return r.NewlyDeniedRequests+r.NewlyAllowedRequests > 0 || len(r.CannotMatch) > 0 || r.Old.Invalid != r.New.Invalid
}

// Report returns the result so far.
func (c *Comparison) Report() *Report {
	changes := descriptors.Diff(c.sides[oldSide].rules, c.sides[newSide].rules)
	r := &Report{
		Requests: c.requests, KeysExact: !c.sides[oldSide].overflow && !c.sides[newSide].overflow, Keys: int64(len(c.sides[newSide].keys)),
		Rules: Changes{changes.RulesAdded, changes.RulesRemoved, changes.RulesModified}, CannotMatch: c.unmatchable.List(nil), Limits: []*Limit{},
	}
	if c.requests > 0 {
		r.From, r.To = &c.from, &c.to
	}
	r.Old, r.New = c.sides[oldSide].report(c.requests), c.sides[newSide].report(c.requests)
	r.NewlyDeniedRequests, r.NewlyAllowedRequests = c.affected[newSide], c.affected[oldSide]
	found := map[*row]*Limit{}
	for _, row := range c.rows {
		found[row] = row.report()
	}
	for i := range c.sides {
		c.sides[i].addKeys(r, found)
	}
	for _, l := range found {
		if l.Counts == (Counts{}) && l.Status == Same {
			continue
		}
		l.WorstDenied, l.WorstAllowed = worst(l.WorstDenied, c.o.Worst), worst(l.WorstAllowed, c.o.Worst)
		r.Limits = append(r.Limits, l)
	}
	slices.SortFunc(r.Limits, func(a, b *Limit) int {
		return cmp.Or(cmp.Compare(b.NewlyDeniedKeys, a.NewlyDeniedKeys), cmp.Compare(b.NewlyDeniedRequests, a.NewlyDeniedRequests),
			cmp.Compare(b.NewlyAllowedKeys, a.NewlyAllowedKeys), cmp.Compare(b.NewlyAllowedRequests, a.NewlyAllowedRequests),
			cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Source, b.Source))
	})
	return r
}

func (s *side) report(requests int64) Side {
	stats := s.replayer.Stats()
	return Side{
		Version: s.rules.Version(), Denied: s.denied, Allowed: requests - s.denied - s.undecided, Unmatched: s.unmatched,
		Invalid: s.undecided, EvictedKeys: int64(stats.Evicted + stats.Rejected),
	}
}

func (r *row) report() *Limit {
	l := &Limit{Domain: r.domain, Path: r.path, Name: r.name, Status: Changed, Old: r.text[oldSide], New: r.text[newSide],
		Source: cmp.Or(r.source[newSide], r.source[oldSide]), WorstDenied: []Key{}, WorstAllowed: []Key{}}
	l.NewlyDeniedRequests, l.NewlyAllowedRequests = r.changed[newSide], r.changed[oldSide]
	l.Requests = r.reached[newSide]
	switch {
	case l.Old == l.New:
		l.Status = Same
	case l.Old == "":
		l.Status = Added
	case l.New == "":
		l.Status, l.Requests = Removed, r.reached[oldSide]
	}
	return l
}

// addKeys adds the keys of a side to the report and to the limits that they are under.
func (s *side) addKeys(r *Report, found map[*row]*Limit) {
	for text, u := range s.keys {
		denied := false
		for i, row := range s.byRule[u.rule].rows {
			l := found[row]
			if s.number == newSide || l.New == "" {
				l.Keys++
			}
			if u.changed == nil || u.changed[i] == 0 {
				continue
			}
			denied = true
			key := Key{Key: text, Requests: u.requests, Changed: u.changed[i], New: !u.deniedByOther}
			l.addKey(s.number, u)
			if s.number == newSide {
				l.WorstDenied = append(l.WorstDenied, key)
			} else {
				l.WorstAllowed = append(l.WorstAllowed, key)
			}
		}
		if denied {
			r.addKey(s.number, u)
		}
	}
}

// addKey counts a key with requests that only a side denies.
func (c *Counts) addKey(side int, u *usage) {
	all, newly := &c.KeysWithNewlyDenied, &c.NewlyDeniedKeys
	if side == oldSide {
		all, newly = &c.KeysWithNewlyAllowed, &c.NewlyAllowedKeys
	}
	*all++
	if !u.deniedByOther {
		*newly++
	}
}

// worst returns the first n keys by their changed requests, with their keys as
// [descriptors.KeyText].
func worst(all []Key, n int) []Key {
	slices.SortFunc(all, func(a, b Key) int { return cmp.Or(cmp.Compare(b.Changed, a.Changed), cmp.Compare(a.Key, b.Key)) })
	all = slices.Clone(all[:min(len(all), max(n, 0))])
	for i := range all {
		all[i].Key = descriptors.KeyText(all[i].Key)
	}
	return all
}
