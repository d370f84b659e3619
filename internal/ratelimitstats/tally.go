package ratelimitstats

import (
	"cmp"
	"math"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A tally is an increment of the counters of a rule.
type tally [numCounters]uint64

const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	overLimitWithLocalCache
	totalNegativeHits
	numCounters
)

// counterNames holds the last part of each counter's name in statsd and in Prometheus.
var counterNames = [numCounters]string{
	totalHits:               "total_hits",
	overLimit:               "over_limit",
	nearLimit:               "near_limit",
	withinLimit:             "within_limit",
	shadowMode:              "shadow_mode",
	overLimitWithLocalCache: "over_limit_with_local_cache",
	totalNegativeHits:       "total_negative_hits",
}

var counterHelp = [numCounters]string{
	totalHits:               "Number of hits requested, without peeks, refunds, releases and settlements.",
	overLimit:               "Number of hits above the limit.",
	nearLimit:               "Number of hits within the limit, but above NEAR_LIMIT_RATIO of it.",
	withinLimit:             "Number of hits allowed.",
	shadowMode:              "Number of hits above the limit of a rule in shadow mode.",
	overLimitWithLocalCache: "Number of hits that the deny cache denied.",
	totalNegativeHits:       "Number of hits refunded.",
}

// tallyOf returns the increment for the verdict of limit i of a descriptor.
//
// For a fixed window that counts denied hits, it equals that of envoyproxy/ratelimit: the window
// holds v.Used hits after this hit of n, and v.Used - n before. A hit that crosses the limit is
// split: the part above the limit is over_limit, and the part between near limit and limit is
// near_limit.
//
// Other algorithms follow the same rule, with three differences. The limit of a funnel is its
// capacity. A denied hit that is not counted is over_limit as a whole. So is a denied hit of a log
// or funnel whose usage already exceeds the limit.
//
// A denial by the deny cache is over_limit and over_limit_with_local_cache as a whole. A peek adds
// nothing. A refund adds only to total_negative_hits. An undecided hit adds only to total_hits,
// because it may not have been charged.
func tallyOf(d *decide.Decision, i int, ratio float32) (t tally) {
	n, v, l := d.Hits, &d.Verdicts[i], d.Limits[i].Limit
	if n < 0 {
		t[totalNegativeHits] = uint64(-n)
		return t
	}
	t[totalHits] = uint64(n)
	if v.Err != nil || n == 0 {
		return t
	}
	limit, spec := l.Capacity(), l.Spec()
	near := nearLimitFrom(limit, ratio)
	after := v.Used
	before := max(0, after-n)
	switch {
	case v.By == limiters.ByCache:
		t[overLimit], t[overLimitWithLocalCache] = uint64(n), uint64(n)
	case v.Allowed:
		t[withinLimit] = uint64(n)
		if after > near {
			t[nearLimit] = uint64(min(n, after-near))
		}
	case !spec.CountDenied || before >= limit || after <= limit:
		t[overLimit] = uint64(n)
	default:
		t[overLimit] = uint64(after - limit)
		t[nearLimit] = uint64(limit - max(near, before))
	}
	if d.ShadowMode {
		t[shadowMode] = t[overLimit]
	}
	return t
}

// nearLimitFrom returns the number of hits that are not near the limit. It computes in 32-bit
// floats, as envoyproxy/ratelimit does, but never rounds above the limit.
func nearLimitFrom(limit int64, ratio float32) int64 {
	return int64(min(math.Floor(float64(float32(limit)*ratio)), float64(limit)))
}

// worse returns the tally of a descriptor under two limits. Its hits count once, with the outcome
// of the tighter limit.
func worse(a, b tally) tally {
	if cmp.Or(cmp.Compare(a[overLimit], b[overLimit]), cmp.Compare(a[nearLimit], b[nearLimit])) < 0 {
		return b
	}
	return a
}
