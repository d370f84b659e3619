package limiters

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

func TestOnlyCertainDenialsAreReported(t *testing.T) {
	log, counting := Spec{Algorithm: "sliding_log", Max: 5}, Spec{Algorithm: "fixed_window", Max: 5, CountDenied: true}
	logged := log
	logged.CountDenied = true
	over := log
	over.Params = Params{Peek: PeekOver}
	strict := counting
	strict.Params = Params{Peek: PeekWouldFit}
	penal := logged
	penal.Params = Params{Penalty: PenaltySpec{After: 1, Within: time.Minute, For: time.Minute}}
	penalOver := penal
	penalOver.Params.Peek = PeekOver
	const none = -1 // no number of hits is certain to be denied
	for what, c := range map[string]struct {
		spec    Spec
		n       int64
		v       Verdict
		minHits int64
	}{
		"a denial":                             {log, 3, Verdict{Used: 4, RetryAfter: 1}, 3},
		"a peek":                               {log, 0, Verdict{Used: 5, RetryAfter: 1}, 0},
		"allowed":                              {log, 3, Verdict{Allowed: true, Used: 3}, none},
		"never":                                {log, 6, Verdict{RetryAfter: -1}, none},
		"undecided":                            {log, 3, Verdict{Err: errDrainsTooSlowly, RetryAfter: 1}, none},
		"denied hits lengthen the wait":        {logged, 3, Verdict{Used: 6, RetryAfter: 1}, none},
		"a window that counts":                 {counting, 3, Verdict{Used: 6, RetryAfter: 1}, 0},
		"a window that did not count the hits": {counting, 3, Verdict{Used: 5, RetryAfter: 1}, none},
		"more hits than the limit":             {counting, 6, Verdict{Used: 6, RetryAfter: -1}, none},
		"a hit where peeks are allowed":        {over, 1, Verdict{Used: 5, RetryAfter: 1}, 1},
		"a peek over the limit":                {over, 0, Verdict{Used: 6, RetryAfter: 1}, none},
		"a peek of a full window":              {strict, 0, Verdict{Used: 5, RetryAfter: 1}, none},
		"a peek of an overfull window":         {strict, 0, Verdict{Used: 6, RetryAfter: 1}, 0},
		"an offense":                           {penal, 1, Verdict{Used: 5, RetryAfter: 1}, none},
		"a penalty":                            {penal, 9, Verdict{Used: 5, RetryAfter: 1, Penalized: true}, 0},
		"a peek over, during a penalty":        {penalOver, 0, Verdict{Used: 5, RetryAfter: 1, Penalized: true}, none},
		"a peek during a penalty":              {penal, 0, Verdict{Used: 5, RetryAfter: 1, Penalized: true}, 0},
	} {
		c.spec.Window = time.Minute
		l, err := NewLimit(c.spec)
		must.Succeed(t, err)
		if minHits, ok := l.CertainDenial(c.n, &c.v); ok != (c.minHits != none) || ok && minHits != c.minHits {
			t.Errorf("%s: %d, %v, want %d", what, minHits, ok, c.minHits)
		}
	}
}
