package limiterstest

import (
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A pair decides operations in a store and in a reference, and compares the verdicts.
type pair struct {
	t                *testing.T
	store, reference TimedStore
	prefix           string // of all keys
}

func newPair(t *testing.T, store TimedStore, prefix string) *pair {
	return &pair{t, store, NewReference(), prefix}
}

// takeSingles decides ungrouped operations, and returns the last verdict.
func (p *pair) takeSingles(now time.Time, ops ...limiters.Op) limiters.Verdict {
	p.t.Helper()
	return p.take(now, limiters.Singles(ops...))
}

// takeGroup decides the operations of one group, and returns the last verdict.
func (p *pair) takeGroup(now time.Time, ops ...limiters.Op) limiters.Verdict {
	p.t.Helper()
	return p.take(now, []limiters.Group{ops})
}

// take adds the prefix to the keys of groups.
func (p *pair) take(now time.Time, groups []limiters.Group) limiters.Verdict {
	p.t.Helper()
	for _, g := range groups {
		for i := range g {
			g[i].Key = p.prefix + g[i].Key
		}
	}
	got, want := takeBoth(p.t, now, groups, p.store, p.reference)
	for i := range want {
		if got[i] != want[i] {
			p.t.Fatalf("%soperation %d at %s: got %s, want %s", p.prefix, i, now, Format(got[i]), Format(want[i]))
		}
	}
	return got[len(got)-1]
}
