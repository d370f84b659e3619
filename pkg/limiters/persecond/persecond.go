// Package persecond is a limiters.Store of two: what is limited by the second goes to one, all else to the other. Windows
// of a second come and go a thousand times as often as the others, and whoever has many of them may want a Redis that
// keeps nothing and is near.
package persecond

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Store is a main store and one for windows of a second. It owns neither.
type Store struct{ main, second limiters.Store }

// New makes a Store. Hits whose window is one second go to second, all others to main, and a group in which there are
// both goes to main as a whole, for one store alone can charge all of it or none: a limit of a second that is now in
// such a group and now alone is counted in two places.
func New(main, second limiters.Store) *Store { return &Store{main, second} }

// Take implements limiters.Store. Both stores are asked at the same time; where one fails, the verdicts of the other
// stand. A zero now is the clock of each, of its own verdicts.
func (s *Store) Take(ctx context.Context, now time.Time, hits []limiters.Hit, out []limiters.Verdict) error {
	seconds, count := choose(hits)
	switch count {
	case 0:
		return s.main.Take(ctx, now, hits, out)
	case len(hits):
		return s.second.Take(ctx, now, hits, out)
	}
	main, second := half{store: s.main}, half{store: s.second}
	for i, h := range hits {
		if seconds[i] {
			second.add(i, h)
		} else {
			main.add(i, h)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { second.take(ctx, now) })
	main.take(ctx, now)
	both.Wait()
	if main.err != nil && second.err != nil {
		return errors.Join(main.err, fmt.Errorf("persecond: %w", second.err))
	}
	main.tell(out)
	second.tell(out)
	return nil
}

// choose tells which hits go to the store for seconds, and how many they are.
func choose(hits []limiters.Hit) (seconds []bool, count int) {
	for i := range hits {
		if hits[i].Limit.Spec().Window == time.Second {
			if seconds == nil {
				seconds = make([]bool, len(hits))
			}
			seconds[i] = true
			count++
		}
	}
	if count == 0 || count == len(hits) {
		return seconds, count
	}
	longer := map[uint16]bool{}
	for i := range hits {
		if g := hits[i].Group; g != 0 && !seconds[i] {
			longer[g] = true
		}
	}
	for i := range hits {
		if seconds[i] && longer[hits[i].Group] {
			seconds[i] = false
			count--
		}
	}
	return seconds, count
}

// A half is what one of the stores is asked.
type half struct {
	store    limiters.Store
	hits     []limiters.Hit
	at       []int // where their verdicts go
	verdicts []limiters.Verdict
	err      error
}

func (h *half) add(at int, hit limiters.Hit) { h.hits, h.at = append(h.hits, hit), append(h.at, at) }

func (h *half) take(ctx context.Context, now time.Time) {
	h.verdicts = make([]limiters.Verdict, len(h.hits))
	h.err = h.store.Take(ctx, now, h.hits, h.verdicts)
}

func (h *half) tell(out []limiters.Verdict) {
	for i, at := range h.at {
		if h.err != nil {
			out[at] = limiters.Verdict{Err: h.err}
		} else {
			out[at] = h.verdicts[i]
		}
	}
}
