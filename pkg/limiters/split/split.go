// Package split divides one Take into parts. Each part has its own store and fails by itself, by an error or by a panic, which
// becomes an error.
package split

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Part is a subset of the hits of a Take. A decorator adds the groups that it does not answer itself, calls Take with a store,
// and writes the verdicts back with Scatter. The zero Part is empty.
type Part struct {
	Groups   []limiters.Group
	Verdicts []limiters.Verdict // one per hit of Groups, set by Take
	at       []int              // the index of each hit's verdict in the whole Take; -1: the whole Take has no such hit
}

// Add adds a group of the whole Take, whose first hit has the verdict out[first] there.
func (p *Part) Add(g limiters.Group, first int) {
	p.Groups = append(p.Groups, g)
	for i := range g {
		p.at = append(p.at, first+i)
	}
}

// AddHits adds a group. at has the index of each hit's verdict in the whole Take, or -1 for a hit that is not in it.
func (p *Part) AddHits(g limiters.Group, at ...int) {
	p.Groups = append(p.Groups, g)
	p.at = append(p.at, at...)
}

// At returns the index of hit i in the whole Take, or -1.
func (p *Part) At(i int) int { return p.at[i] }

// Omit excludes hit i from [Part.Scatter].
func (p *Part) Omit(i int) { p.at[i] = -1 }

// Len returns the number of hits.
func (p *Part) Len() int { return len(p.at) }

// Take calls store.Take with the hits of p.
func (p *Part) Take(ctx context.Context, store limiters.Store, now time.Time) error {
	p.Verdicts = make([]limiters.Verdict, len(p.at))
	return store.Take(ctx, now, p.Groups, p.Verdicts)
}

// Scatter writes the verdicts of p to out, the verdicts of the whole Take. A non-nil err replaces each of them.
func (p *Part) Scatter(out []limiters.Verdict, err error) {
	for i, at := range p.at {
		switch {
		case at < 0:
		case err != nil:
			out[at] = limiters.Verdict{Err: err}
		default:
			out[at] = p.Verdicts[i]
		}
	}
}

// Parts divides the groups of a Take among several stores. The zero Parts is empty.
type Parts struct{ parts []storePart }

type storePart struct {
	Part
	store limiters.Store
	err   error
}

// Add adds a group for store, which must be comparable. The first hit of the group has the verdict out[first] of the whole Take.
func (ps *Parts) Add(store limiters.Store, g limiters.Group, first int) {
	for i := range ps.parts {
		if ps.parts[i].store == store {
			ps.parts[i].Add(g, first)
			return
		}
	}
	ps.parts = append(ps.parts, storePart{store: store})
	ps.parts[len(ps.parts)-1].Add(g, first)
}

// Take calls the stores concurrently and writes their verdicts to out. The error or panic (see [ErrPanic]) of a store becomes the
// error of its hits. Take returns an error, joined from all, only if every store fails.
func (ps *Parts) Take(ctx context.Context, now time.Time, out []limiters.Verdict) error {
	if len(ps.parts) == 0 {
		return nil
	}
	var others sync.WaitGroup
	for i := range ps.parts[1:] {
		others.Go(func() { ps.parts[i+1].take(ctx, now) })
	}
	ps.parts[0].take(ctx, now)
	others.Wait()
	var errs []error
	for i := range ps.parts {
		p := &ps.parts[i]
		p.Scatter(out, p.err)
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	if len(errs) < len(ps.parts) {
		return nil
	}
	return errors.Join(errs...)
}

func (p *storePart) take(ctx context.Context, now time.Time) {
	defer RecoverTo(&p.err)
	p.err = p.Take(ctx, p.store, now)
}

// ErrPanic is the error of hits whose store panicked. They may have been charged.
var ErrPanic = errors.New("a bug, please report it: panic")

// RecoverTo converts a panic to an error with the stack that wraps [ErrPanic]. Every goroutine that decides hits must defer it.
func RecoverTo(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
	}
}
