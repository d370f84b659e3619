package limiters

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// A Part is some hits of a Take that another Take decides. A decorator of a [Store] adds the groups that it does not
// answer itself, has a store decide them, and writes their verdicts to the verdicts of the whole Take. The zero Part is
// empty.
type Part struct {
	Groups   []Group
	Verdicts []Verdict // one per hit of Groups, set by Take
	at       []int     // the index of each hit's verdict in the whole Take; -1: the whole Take has no such hit
}

// Add adds a group of the whole Take, whose first hit has the verdict out[first] there.
func (p *Part) Add(g Group, first int) {
	p.Groups = append(p.Groups, g)
	for i := range g {
		p.at = append(p.at, first+i)
	}
}

// AddHits adds a group of some hits of the whole Take and of hits that are not in it. For each hit of g, at has the index of
// its verdict in the whole Take, or -1.
func (p *Part) AddHits(g Group, at ...int) {
	p.Groups = append(p.Groups, g)
	p.at = append(p.at, at...)
}

// At returns the index in the whole Take of hit i of p.
func (p *Part) At(i int) int { return p.at[i] }

// Drop leaves hit i of p out of [Part.Scatter].
func (p *Part) Drop(i int) { p.at[i] = -1 }

// Len returns the number of hits in p.
func (p *Part) Len() int { return len(p.at) }

// Take has store decide the hits of p.
func (p *Part) Take(ctx context.Context, store Store, now time.Time) error {
	p.Verdicts = make([]Verdict, len(p.at))
	return store.Take(ctx, now, p.Groups, p.Verdicts)
}

// Scatter writes the verdicts of p to out, the verdicts of the whole Take. If err is not nil, each verdict is err.
func (p *Part) Scatter(out []Verdict, err error) {
	for i, at := range p.at {
		switch {
		case at < 0:
		case err != nil:
			out[at] = Verdict{Err: err}
		default:
			out[at] = p.Verdicts[i]
		}
	}
}

// A Split divides the groups of one Take among several stores. The zero Split is empty.
type Split struct{ parts []storePart }

type storePart struct {
	Part
	store Store
	err   error
}

// Add adds a group of the whole Take for a store, which must be comparable. The first hit of the group has the verdict
// out[first] of the whole Take.
func (s *Split) Add(store Store, g Group, first int) {
	for i := range s.parts {
		if s.parts[i].store == store {
			s.parts[i].Add(g, first)
			return
		}
	}
	s.parts = append(s.parts, storePart{store: store})
	s.parts[len(s.parts)-1].Add(g, first)
}

// Take has the stores decide their hits, all at the same time, and writes the verdicts to out. If a store fails, its error
// is in the verdicts of its hits. Take returns an error only if all stores fail. A panic in a store is a failure of that
// store, see [ErrPanic].
func (s *Split) Take(ctx context.Context, now time.Time, out []Verdict) error {
	if len(s.parts) == 0 {
		return nil
	}
	var others sync.WaitGroup
	for i := range s.parts[1:] {
		others.Go(func() { s.parts[i+1].take(ctx, now) })
	}
	s.parts[0].take(ctx, now)
	others.Wait()
	var errs []error
	uncharged := true
	for i := range s.parts {
		p := &s.parts[i]
		p.Scatter(out, p.err)
		if p.err == nil {
			continue
		}
		errs = append(errs, p.err)
		uncharged = uncharged && errors.Is(p.err, ErrUncharged)
	}
	if len(errs) < len(s.parts) {
		return nil
	}
	for i, err := range errs {
		// The Take as a whole is uncharged only if each part is.
		if !uncharged && errors.Is(err, ErrUncharged) {
			errs[i] = errors.New(err.Error())
		}
	}
	return errors.Join(errs...)
}

func (p *storePart) take(ctx context.Context, now time.Time) {
	defer RecoverTo(&p.err)
	p.err = p.Take(ctx, p.store, now)
}

// ErrUncharged is wrapped by the error of a Take or of a hit that certainly charged nothing, such as one rejected before it
// was sent. After any other error the hit may have been charged.
var ErrUncharged = errors.New("nothing was charged")

// ErrPanic is the error of hits that could not be decided because of a panic, which is a bug. They may have been charged.
var ErrPanic = errors.New("a bug, please report it: panic")

// RecoverTo turns a panic into an error that wraps [ErrPanic] and holds the stack. Defer it on every goroutine that decides
// hits: a panic on one that does not recover ends the process.
func RecoverTo(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
	}
}
