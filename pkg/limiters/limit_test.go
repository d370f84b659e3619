package limiters

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
)

// The reports of a limit about its algorithm agree with its decisions, so that callers need not
// know any algorithm by its name.
func TestLimitMethodsAgreeWithDecisions(t *testing.T) {
	const window = int64(time.Second / time.Microsecond)
	allows := func(l *Limit, s *State, now, n int64) bool {
		out := make([]Verdict, 1)
		Decide(now, Singles(Op{Limit: l, Hits: n}), []*State{s}, out, nil)
		return out[0].Allowed
	}
	for _, name := range Algorithms() {
		if !HasWindow(name) {
			continue
		}
		for seed := range uint64(500) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			l, err := NewLimit(Spec{Algorithm: name, Max: 2 + rnd.Int64N(4), Window: time.Second, CountDenied: rnd.IntN(2) > 0})
			must.Succeed(t, err)
			start := 1e9 * window // where a window begins
			full := &State{}
			if !allows(l, full, start, l.Capacity()) || allows(l, full, start, 0) != l.PeeksOver() {
				t.Errorf("%+v: PeeksOver is %t, want the verdict on a peek of a full key", l.Spec(), l.PeeksOver())
			}
			if allows(l, full, start+window-1, 1) != l.Drains() {
				t.Errorf("%+v: Drains is %t, want the verdict on a hit just before the end of the window", l.Spec(), l.Drains())
			}
			s, now, admitted := &State{}, start, map[int64]int64{}
			for range 40 {
				if n := 1 + rnd.Int64N(3); allows(l, s, now, n) {
					admitted[now] += n
				}
				sum := int64(0)
				for at, n := range admitted {
					if at > now-window {
						sum += n
					}
				}
				if sum > l.MaxAdmitted() {
					t.Fatalf("%+v, seed %d: %d hits in a window, want at most %d", l.Spec(), seed, sum, l.MaxAdmitted())
				}
				now += rnd.Int64N(window / 4)
			}
		}
	}
}
