package telemetry

import (
	"math"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

// A tally is what something adds to the counters that envoyproxy/ratelimit has for each rule.
type tally [counters]uint64

const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	overLimitWithLocalCache
	totalNegativeHits
	counters
)

// counterNames are the last parts of their names, in statsd and in Prometheus alike.
var counterNames = [counters]string{
	totalHits:               "total_hits",
	overLimit:               "over_limit",
	nearLimit:               "near_limit",
	withinLimit:             "within_limit",
	shadowMode:              "shadow_mode",
	overLimitWithLocalCache: "over_limit_with_local_cache",
	totalNegativeHits:       "total_negative_hits",
}

var counterHelp = [counters]string{
	totalHits:               "Hits asked for. Looks and refunds are no hits.",
	overLimit:               "Hits above the limit.",
	nearLimit:               "Hits under the limit, but above NEAR_LIMIT_RATIO of it.",
	withinLimit:             "Hits allowed.",
	shadowMode:              "Hits above the limit of a rule in shadow mode.",
	overLimitWithLocalCache: "Hits above the limit that the deny cache answered.",
	totalNegativeHits:       "Hits given back.",
}

// tallyOf counts what one limit said. For a fixed window that counts denied hits it is what envoyproxy/ratelimit
// counts, whose window holds used hits after this one and used - n before. The hit that crosses the limit is split:
// what lies above it is over_limit, what of it lies between the near limit and the limit is near_limit.
//
// The same holds for the other algorithms, with these readings. The limit of a funnel is what it holds: near_limit
// says how full it is. A denied hit that is not counted has taken no part of what was left, so all of it is over_limit
// and none is near_limit. Where a log or a funnel is full of denied hits, and drops some, all of a hit is over_limit.
//
// What the deny cache answered was over the limit before: all of it is over_limit, and over_limit_with_local_cache.
//
// A look is 0 hits, and adds 0. A refund is total_negative_hits alone. What the store could not decide is counted as
// asked for, and that is all: nobody knows whether it was charged.
func tallyOf(d *rls.Decision, ratio float32) (t tally) {
	n, v := min(d.Hits, limiters.MaxHits), &d.Verdict
	if n < 0 {
		t[totalNegativeHits] = uint64(-n)
		return t
	}
	t[totalHits] = uint64(n)
	if v.Err != nil || n == 0 {
		return t
	}
	if v.By == limiters.ByCache {
		t[overLimit], t[overLimitWithLocalCache] = uint64(n), uint64(n)
		if d.Shadowed {
			t[shadowMode] = uint64(n)
		}
		return t
	}
	limit := d.Limit.Limit.Capacity()
	near := nearOf(limit, ratio)
	after := v.Used
	before := max(0, after-n)
	if v.Allowed {
		t[withinLimit] = uint64(n)
		if after > near {
			t[nearLimit] = uint64(min(n, after-near))
		}
		return t
	}
	spec := d.Limit.Limit.Spec()
	counted := spec.CountDenied && spec.Max > 0
	if !counted || before >= limit || after <= limit {
		t[overLimit] = uint64(n)
	} else {
		t[overLimit] = uint64(min(n, after-limit))
		t[nearLimit] = uint64(limit - max(near, before))
	}
	if d.Shadowed {
		t[shadowMode] = t[overLimit]
	}
	return t
}

// nearOf is how many hits are not yet near the limit, in the incumbent's arithmetic, which is of 32 bits: it may round
// up, but here not above the limit.
func nearOf(limit int64, ratio float32) int64 {
	near := math.Floor(float64(float32(limit) * ratio))
	if !(near > 0) { // nor NaN
		return 0
	}
	return int64(min(near, float64(limit)))
}

// worse is the tally of a descriptor that is under several limits: its hits are hits once, and what they came to is
// what the tightest of the limits said.
func worse(a, b tally) tally {
	for _, by := range []int{overLimit, nearLimit, totalHits} {
		if a[by] != b[by] {
			if b[by] > a[by] {
				return b
			}
			return a
		}
	}
	return a
}

// sameDescriptor tells whether two decisions that follow one another are of one descriptor of the request.
func sameDescriptor(a, b *rls.Decision) bool {
	return len(a.Entries) > 0 && len(b.Entries) > 0 && &a.Entries[0] == &b.Entries[0]
}
