// Package split divides one Take among stores. Each store gets a subset of the groups. If a store
// fails or panics, only its own operations get an error. [PerSecondRouter] is a store that divides
// operations between two stores in this way.
package split

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weir-rls/weir/pkg/limiters"
)

// A Subset holds some of the operations of a Take. A decorator adds the groups that it does not
// answer itself, calls Take with a store, and writes the verdicts back with Scatter. The zero
// Subset is empty.
type Subset struct {
	Groups   []limiters.Group
	Verdicts []limiters.Verdict // one per operation of Groups, set by Take
	indices  []int              // the index of each operation's verdict in the whole Take; -1: the whole Take has no such operation
}

// Add adds a group of the whole Take, whose first operation has the verdict out[first] there.
func (s *Subset) Add(g limiters.Group, first int) {
	s.Groups = append(s.Groups, g)
	for i := range g {
		s.indices = append(s.indices, first+i)
	}
}

// AddOps adds a group, with the index of each operation's verdict in the whole Take, or -1 for an
// operation that is not in it.
func (s *Subset) AddOps(g limiters.Group, indices ...int) {
	s.Groups = append(s.Groups, g)
	s.indices = append(s.indices, indices...)
}

// Index returns the index of operation i in the whole Take, or -1.
func (s *Subset) Index(i int) int { return s.indices[i] }

// Len returns the number of operations.
func (s *Subset) Len() int { return len(s.indices) }

// Take decides the operations of s with store.
func (s *Subset) Take(ctx context.Context, store limiters.Taker) error {
	s.Verdicts = make([]limiters.Verdict, len(s.indices))
	return store.Take(ctx, s.Groups, s.Verdicts)
}

// Scatter writes the verdicts of s to out, the verdicts of the whole Take.
func (s *Subset) Scatter(out []limiters.Verdict) {
	for i, index := range s.indices {
		if index >= 0 {
			out[index] = s.Verdicts[i]
		}
	}
}

// ErrorOfAll returns the error of a Take whose parts ended with errs: nil if a part succeeded, and
// otherwise all errors joined. It is [limiters.IsUncharged] only if all of them are. It omits
// errors with the text of an earlier one, because hundreds may be alike.
func ErrorOfAll(errs []error) error {
	if slices.Contains(errs, nil) {
		return nil
	}
	type content struct {
		text      string
		uncharged bool
	}
	seen := map[content]bool{}
	var unique []error
	for _, err := range errs {
		c := content{err.Error(), limiters.IsUncharged(err)}
		if !seen[c] {
			seen[c] = true
			unique = append(unique, err)
		}
	}
	if len(unique) == 1 {
		return unique[0]
	}
	return errors.Join(unique...)
}

// A PartError is the error of operations whose store failed as a whole, while another part of the
// Take was decided: by another store of a [FanOut], or from memory.
type PartError struct{ Err error }

func (e *PartError) Error() string { return e.Err.Error() }
func (e *PartError) Unwrap() error { return e.Err }

// A FanOut divides the groups of a Take among several stores. The zero FanOut is empty.
type FanOut struct{ subsets []storeSubset }

type storeSubset struct {
	Subset
	store limiters.Taker
}

// Add adds a group for store, which must be comparable. The first operation of the group has the
// verdict out[first] of the whole Take.
func (f *FanOut) Add(store limiters.Taker, g limiters.Group, first int) {
	i := slices.IndexFunc(f.subsets, func(s storeSubset) bool { return s.store == store })
	if i < 0 {
		i = len(f.subsets)
		f.subsets = append(f.subsets, storeSubset{store: store})
	}
	f.subsets[i].Add(g, first)
}

// Take calls the stores concurrently and writes their verdicts to out. The error or panic (see
// [limiters.ErrPanic]) of a store becomes the error of its operations, in a [PartError]. If every
// store fails, Take returns an error, joined from all, which is also that of each verdict.
func (f *FanOut) Take(ctx context.Context, out []limiters.Verdict) error {
	if len(f.subsets) == 0 {
		return nil
	}
	errs := make([]error, len(f.subsets))
	take := func(i int) {
		s := &f.subsets[i]
		errs[i] = limiters.CatchPanic(func() error { return s.Take(ctx, s.store) })
	}
	var others sync.WaitGroup
	for i := range f.subsets[1:] {
		others.Go(func() { take(i + 1) })
	}
	take(0)
	others.Wait()
	if err := ErrorOfAll(errs); err != nil {
		return limiters.FailAll(out, err)
	}
	for i := range f.subsets {
		s := &f.subsets[i]
		if errs[i] != nil {
			limiters.FailAll(s.Verdicts, &PartError{errs[i]})
		}
		s.Scatter(out)
	}
	return nil
}

// FoundInEither combines the results of Reset of two stores for the same keys: it reports for each
// key whether one of the stores had a state. It changes a, and takes missing elements of b as
// false.
func FoundInEither(a, b []bool) []bool {
	for i := range b {
		if i < len(a) {
			a[i] = a[i] || b[i]
		}
	}
	return a
}
