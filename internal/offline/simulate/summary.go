package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/recording"
)

// finish returns the Result of a recording with a share of all keys. Observe no request afterwards.
func (s *stats) finish(rules *descriptors.Rules, clients []*client, share float64) *Result {
	r := &s.result
	s.share = share
	r.RulesVersion = rules.Version()
	for path, n := range s.unmatched {
		path.Descriptors = n
		r.UnmatchedPaths = append(r.UnmatchedPaths, path)
	}
	slices.SortFunc(r.UnmatchedPaths, func(a, b UnmatchedPath) int {
		return cmp.Or(cmp.Compare(b.Descriptors, a.Descriptors), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Path, b.Path))
	})
	r.UnmatchedPaths = append([]UnmatchedPath{}, r.UnmatchedPaths[:min(len(r.UnmatchedPaths), maxUnmatched)]...)
	r.CannotMatch = s.unmatchable.List(func(rule *descriptors.Rule) bool { return s.matched[rule] })
	r.Skipped = []recording.FileSkipCount{}
	r.Timeline = Timeline{
		Start: s.buckets.start.UTC(), BucketSeconds: widths[s.buckets.width].Seconds(),
		Allowed: s.allowed.full(s.buckets.n), Denied: s.denied.full(s.buckets.n),
	}
	for _, c := range clients {
		c.counts.Waiting = int64(len(c.waiting))
		r.Clients = append(r.Clients, c.counts)
	}
	r.Interval = intervalOf(r.Clients)
	r.Limits = []*LimitResult{}
	for i := range s.rows.all {
		row := &s.rows.all[i]
		if s.limits[i] == nil && row.limit == nil {
			continue // no request carried a limit
		}
		limit := row.describe()
		if l := s.limits[i]; l != nil {
			s.summarize(l, limit)
		}
		for _, c := range clients {
			count := &c.limits[i]
			one := LimitClients{Model: c.counts.Model, Requests: count.requests, Denied: count.denied, KeysDenied: int64(len(count.keys))}
			if one.Model == Drop {
				one.KeysDenied = limit.KeysDenied
			}
			limit.Clients = append(limit.Clients, one)
		}
		r.Limits = append(r.Limits, limit)
	}
	if share < 1 {
		r.Sample = s.sums.estimates(share, r)
	}
	s.warn(clients)
	return r
}

func (s *stats) warn(clients []*client) {
	s.result.Warnings = []string{}
	warn := func(format string, args ...any) {
		s.result.Warnings = append(s.result.Warnings, fmt.Sprintf(format, args...))
	}
	for _, c := range clients {
		if size := c.replayer.Stats(); size.Evicted+size.Rejected > 0 {
			warn("clients %s: the counters need more memory: %d counters were evicted, %d hits were refused",
				c.counts.Model, size.Evicted, size.Rejected)
		}
		if c.partial {
			warn("clients %s: more than %d keys were denied, so keys_denied is a lower bound", c.counts.Model, s.options.MaxKeys)
		}
		if c.counts.Overflowed > 0 {
			warn("clients %s: %d denied requests were not sent again, because %d retries were waiting",
				c.counts.Model, c.counts.Overflowed, s.options.MaxWaiting)
		}
	}
	if s.keys >= s.options.MaxKeys {
		warn("there are more than %d keys, so keys, keys_denied and the lists of keys are of the first only", s.options.MaxKeys)
	}
}

func intervalOf(clients []Client) *Interval {
	var denied, share []float64
	for _, c := range clients {
		denied = append(denied, float64(c.Denied))
		share = append(share, float64(c.Denied)/float64(max(1, c.Attempts)))
	}
	return &Interval{Range{slices.Min(denied), slices.Max(denied)}, Range{slices.Min(share), slices.Max(share)}}
}

// describe returns the LimitResult of a limit without requests.
func (l *limitRow) describe() *LimitResult {
	r := &LimitResult{
		Name: "override", Text: "limits of requests", Mode: "enforced",
		AllowedOverTime: []int64{}, DeniedOverTime: []int64{}, TopKeys: []TopKey{},
	}
	if l.rule != nil {
		r.Domain, r.Path, r.Source, r.Mode = l.rule.Domain, l.rule.Name, l.rule.Source(), l.rule.Mode()
	}
	if limit := l.limit; limit != nil {
		r.Name = limit.Label(l.number)
		r.Algorithm = limit.Algorithm()
		r.Text = limit.RateText() + ", " + r.Algorithm
		r.RequestsPerUnit, r.WindowSeconds = limit.RequestsPerUnit, limit.Window().Seconds()
	}
	return r
}

// summarize fills in the statistics of a limit.
func (s *stats) summarize(l *limitStats, r *LimitResult) {
	r.Requests, r.Denied, r.Hits, r.NearLimit, r.Untracked = l.requests, l.denied, l.hits, l.near, l.untracked
	r.Keys = int64(len(l.keys))
	if l.peak > 0 {
		r.Peak = &Peak{Used: l.peak, At: microTime(l.peakAt), Key: descriptors.KeyText(l.peakKey)}
	}
	r.AllowedOverTime, r.DeniedOverTime = l.allowedOver.full(s.buckets.n), l.deniedOver.full(s.buckets.n)
	r.TopKeys = topKeys(l, r)
	if s.share < 1 {
		r.KeysEstimate, r.KeysDeniedEstimate = estimateKeys(r.Keys, s.share), estimateKeys(r.KeysDenied, s.share)
	}
	switch {
	case l.compare == nil:
		r.Comparison = &Comparison{Reason: l.noComparisonReason}
	case s.noComparisonReason != "":
		r.Comparison = &Comparison{Reason: s.noComparisonReason}
	default:
		r.Comparison = l.compare.result()
		r.Usage = usageOf(l, r.RequestsPerUnit)
	}
	if r.Comparison.Algorithms == nil {
		r.Comparison.Algorithms = []AlgorithmResult{}
	}
}

// topKeys returns the keys with the most denied requests. It also counts the denied keys, and the
// time that they were shut out.
func topKeys(l *limitStats, r *LimitResult) []TopKey {
	type denied struct {
		text string
		k    *keyStats
	}
	worse := func(a, b denied) int {
		return cmp.Or(cmp.Compare(b.k.denied, a.k.denied), cmp.Compare(b.k.shutOutTime, a.k.shutOutTime), cmp.Compare(a.text, b.text))
	}
	var top []denied
	shutOutTime := int64(0)
	for text, k := range l.keys {
		if k.denied == 0 {
			continue
		}
		r.KeysDenied++
		shutOutTime = addUpTo(shutOutTime, k.shutOutTime)
		top = append(top, denied{text, k})
		if len(top) >= 1000 {
			slices.SortFunc(top, worse)
			top = top[:maxTopKeys]
		}
	}
	slices.SortFunc(top, worse)
	r.ShutOutSeconds = float64(shutOutTime) / 1e6
	list := []TopKey{}
	for _, d := range top[:min(len(top), maxTopKeys)] {
		list = append(list, TopKey{
			Key: descriptors.KeyText(d.text), Requests: d.k.requests, Denied: d.k.denied,
			FirstDenied: microTime(d.k.firstDenied), LastDenied: microTime(d.k.lastDenied), ShutOutSeconds: float64(d.k.shutOutTime) / 1e6,
		})
	}
	return list
}

var usageBins = []int64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 200, 300, 500, 1000}

func usageOf(l *limitStats, limit int64) *Usage {
	if len(l.keys) == 0 {
		return nil
	}
	demand, requests := make([]int64, 0, len(l.keys)), make([]int64, 0, len(l.keys))
	u := &Usage{}
	for i, above := range usageBins {
		bin := UsageBin{AbovePercent: above}
		if i+1 < len(usageBins) {
			bin.UpToPercent = usageBins[i+1]
		}
		u.Histogram = append(u.Histogram, bin)
	}
	for _, k := range l.keys {
		demand, requests = append(demand, k.demand), append(requests, k.requests)
		percent := 100 * float64(k.demand) / float64(limit)
		i := len(usageBins) - 1
		for i > 0 && percent <= float64(usageBins[i]) {
			i--
		}
		u.Histogram[i].Keys++
	}
	u.Demand, u.Requests = quantilesOf(demand), quantilesOf(requests)
	return u
}

// quantilesOf sorts the values. There is at least one.
func quantilesOf(values []int64) Quantiles {
	slices.Sort(values)
	upTo := func(perMille int) int64 { return values[max(0, (len(values)*perMille+999)/1000-1)] }
	return Quantiles{
		Min: values[0], P50: upTo(500), P75: upTo(750), P90: upTo(900), P95: upTo(950), P99: upTo(990), P999: upTo(999), Max: upTo(1000),
	}
}
