package decisionstream

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-rls/weir/internal/keysample"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A Denial is a denial for the log. Of the values that a user sent, it contains only those that the
// rules name.
type Denial struct {
	Domain, Rule, Limit, Algorithm string // Limit is that of [decide.Plan.LimitLabel]
	KeyHash                        string
	Enforced                       bool // false: shadow mode or quota mode let the request pass
	Penalized                      bool // a penalty denies the key
	Used                           int64
	RetryAfter                     time.Duration // negative: the hits can never fit
	Replica, RulesVersion          string
	Suppressed                     int64 // denials that the log left out before this one, because too many came in one second
}

// A denialLog samples denials for the log.
type denialLog struct {
	maxHash    uint64       // the highest sample hash of the fraction of keys; 0: none
	suppressed atomic.Int64 // since the start

	mu      sync.Mutex
	rate    perSecondLimit
	skipped int64 // denials left out since the last logged one
}

// admit reports whether another denial may be logged now, and how many were skipped since the last
// one.
func (l *denialLog) admit(now time.Time) (skipped int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.rate.admit(now) {
		l.skipped++
		l.suppressed.Add(1)
		return 0, false
	}
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

func (s *Stream) logDenial(r *decide.Result, i, denying int) {
	d := &r.Decisions[i]
	if keysample.Hash(d.Plan) > s.denials.maxHash {
		return
	}
	skipped, ok := s.denials.admit(time.Now())
	if !ok {
		return
	}
	v := &d.Verdicts[denying]
	s.options.LogDenial(&Denial{
		Domain: d.Domain, Rule: d.RuleName(), Limit: d.LimitLabel(denying), Algorithm: d.Limits[denying].Algorithm(),
		KeyHash: descriptors.KeyHash(s.options.KeyHashSecret, d.Key), Enforced: r.Enforced(d), Penalized: v.Penalized, Used: v.Used, RetryAfter: v.RetryAfter,
		Replica: s.options.Replica, RulesVersion: r.Rules.Version(), Suppressed: skipped,
	})
}
