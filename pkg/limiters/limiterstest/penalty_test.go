package limiterstest

import (
	"context"
	"math/big"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A penalized is a limit with a penalty as the definition has it: a list of all offenses and one of
// all penalties.
type penalized struct {
	limit                                         model
	after, within, lasts, factor, longest, forget int64
	offenses                                      []int64 // the time of each since the last penalty
	penalties                                     []period
}

type period struct{ from, until int64 }

func newPenalized(s limiters.Spec, limit model) *penalized {
	rule := s.Params.Penalty
	p := &penalized{
		limit: limit,
		after: rule.After, within: rule.Within.Microseconds(), lasts: rule.For.Microseconds(), factor: max(1, rule.Factor),
		longest: rule.Max.Microseconds(), forget: rule.Forget.Microseconds(),
	}
	if p.longest == 0 {
		p.longest = (24 * time.Hour).Microseconds()
	}
	if p.forget == 0 {
		p.forget = p.longest
	}
	return p
}

func (p *penalized) take(now, n, _ int64) limiters.Verdict {
	until := p.end(now)
	if n < 0 || until <= now {
		v := p.limit.take(now, n, 0)
		if v.Allowed {
			return v
		}
		penalties := len(p.penalties)
		p.addOffense(now)
		v = p.deny(now, v)
		v.PenaltyBegan = v.Penalized && len(p.penalties) > penalties
		return v
	}
	// Nothing is charged: one copy of the limit gives the wait of the hits, and another the usage.
	shown, attempt := clone(p.limit).take(now, 0, 0), uncounted(p.limit).take(now, n, 0)
	shown.Allowed, shown.RetryAfter = false, attempt.RetryAfter
	return p.deny(now, shown)
}

// end returns the end of the last penalty. It is at most the longest penalty from now.
func (p *penalized) end(now int64) int64 {
	if len(p.penalties) == 0 {
		return 0
	}
	last := &p.penalties[len(p.penalties)-1]
	return min(last.until, now+p.longest)
}

func (p *penalized) addOffense(now int64) {
	p.offenses = append(p.offenses, now)
	// Walks the windows from the first offense.
	start, count := int64(0), int64(0)
	for _, at := range p.offenses {
		if count == 0 || at >= start+p.within || at < start-p.within {
			start, count = at, 0
		}
		count++
	}
	if count < p.after {
		return
	}
	// begun is the number of penalties before this one that were not forgotten.
	begun := int64(0)
	for i := range p.penalties {
		next := now
		if i+1 < len(p.penalties) {
			next = p.penalties[i+1].from
		}
		if begun++; next >= p.penalties[i].until+p.forget {
			begun = 0
		}
	}
	length := new(big.Int).Exp(big.NewInt(p.factor), big.NewInt(begun), nil)
	length.Mul(length, big.NewInt(p.lasts))
	if longest := big.NewInt(p.longest); length.Cmp(longest) > 0 {
		length = longest
	}
	p.offenses, p.penalties = nil, append(p.penalties, period{now, now + length.Int64()})
}

// deny completes a verdict that denies: the penalty's end, if it is the later one.
func (p *penalized) deny(now int64, v limiters.Verdict) limiters.Verdict {
	until := p.end(now)
	if len(p.penalties) > 0 && until > now {
		p.penalties[len(p.penalties)-1].until = until
	}
	if until > now {
		v.Remaining, v.ResetAfter = 0, max(v.ResetAfter, time.Duration(until-now)*time.Microsecond)
	}
	if wait := time.Duration(until-now) * time.Microsecond; until > now && v.RetryAfter >= 0 && wait >= v.RetryAfter {
		v.Penalized, v.RetryAfter = true, wait
	}
	return v
}

// clone returns a copy of a model that can be changed by itself.
func clone(m model) model {
	switch m := m.(type) {
	case *naiveWindow:
		c := *m
		return &c
	case *naiveLog:
		c := *m
		c.hits = slices.Clone(m.hits)
		return &c
	case *naiveFunnel:
		c := *m
		c.held = new(big.Rat).Set(m.held)
		return &c
	}
	panic("no such model")
}

// uncounted returns a copy of a model that does not count denied hits. A window needs none: its
// denied hits do not change the wait, and whether they count changes a peek.
func uncounted(m model) model {
	c := clone(m)
	switch c := c.(type) {
	case *naiveLog:
		c.CountDenied = false
	case *naiveFunnel:
		c.CountDenied = false
	}
	return c
}

func TestPenaltiesAgreeWithNaiveModel(t *testing.T) {
	for _, name := range WindowedAlgorithms() {
		t.Run(name, func(t *testing.T) {
			ops, begun := uint64(0), uint64(0)
			for seed := FirstSeed() + 2000; ops < Sequences(30_000); seed++ {
				g := NewPenaltyGenerator(name, seed)
				g.limits = g.limits[:1]
				spec := g.limits[0].Spec()
				if name == "sliding_log" && spec.Max > 200 {
					continue
				}
				m, core := newPenalized(spec, naiveModels[name](spec)), NewReference()
				var history []string
				for range 80 {
					now, groups := g.Next()
					ops++
					op := limiters.Op{Key: "k", Limit: g.limits[0], Hits: groups[0][0].Hits}
					out := make([]limiters.Verdict, 1)
					must.Succeed(t, core.TakeAt(context.Background(), now, limiters.Singles(op), out))
					want := m.take(now.UnixMicro(), clamp(op.Hits), 0)
					want.At = now.UnixMicro()
					history = append(history, now.Format(time.RFC3339Nano)+" "+strconv.FormatInt(op.Hits, 10)+" "+Format(want))
					if out[0] != want {
						for _, line := range history[max(0, len(history)-14):] {
							t.Log(line)
						}
						t.Fatalf("seed %d, %+v:\n got %s\nwant %s", seed, spec, Format(out[0]), Format(want))
					}
					g.Observe(out)
				}
				begun += uint64(len(m.penalties))
			}
			if begun < ops/30 {
				t.Errorf("only %d penalties in %d operations", begun, ops)
			}
		})
	}
}
