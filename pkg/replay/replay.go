// Package replay decides requests at given times, as a server with these rules would have decided
// them at those times:
//
//	replayer := replay.New(rules, replay.Options{})
//	var result decide.Result
//	err := replayer.Decide(at, &request, &result)
//
// A [Replayer] runs the code of the server, [decide.Decider] on memstore, with a virtual clock. A
// day of traffic takes seconds.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
	"github.com/weir-rls/weir/pkg/recording"
)

// Options configures a [Replayer]. The zero value is the default configuration.
type Options struct {
	// Decide holds the settings of the server that is replayed.
	Decide decide.Options
	// MaxKeys and MaxBytes bound the counters, as in [memstore.Options]. The defaults are
	// 10,000,000 keys and 768 MiB.
	MaxKeys, MaxBytes int64
}

const defaultMaxBytes = 768 << 20

var (
	// ErrEarlier is returned for a request that is earlier than the one before. The time of a key
	// never runs back, so the request would be decided at the wrong time.
	ErrEarlier = errors.New("the request is earlier than the one before")
	// ErrOutOfRange is returned for a request before 1971 or after 2199.
	ErrOutOfRange = errors.New("the time is out of range: want the years 1971 to 2199")
)

// A Replayer decides requests in the order of their times. It keeps the counters of all keys in
// memory, and removes a counter once it has fully reset in virtual time. It is not safe for
// concurrent use.
type Replayer struct {
	now     time.Time // the last request's time, in whole microseconds
	store   *memstore.Store
	decider *decide.Decider
}

// New returns a Replayer without counters.
func New(rules *descriptors.Rules, o Options) *Replayer {
	r := &Replayer{now: recording.Earliest}
	r.store = memstore.New(memstore.Options{
		MaxKeys: o.MaxKeys, MaxBytes: cmp.Or(o.MaxBytes, defaultMaxBytes), Now: func() time.Time { return r.now },
	})
	r.decider = decide.New(func() *descriptors.Rules { return rules }, r.store, o.Decide)
	return r
}

// Decide decides a request at a time and writes the outcome to into. Requests of equal times are in
// the order of the calls. Decide cuts the time to whole microseconds. The request and the result
// follow the rules of [decide.Decider.Decide].
//
// After [ErrEarlier] or [ErrOutOfRange], nothing was decided or charged, and the next request may
// follow. Any other error is a [*decide.Error], such as that of a request without a domain.
func (r *Replayer) Decide(at time.Time, request *decide.Request, into *decide.Result) error {
	at = at.Truncate(time.Microsecond)
	switch {
	case !recording.InRange(at):
		into.Reset()
		return fmt.Errorf("%w: it is %v", ErrOutOfRange, at)
	case at.Before(r.now):
		into.Reset()
		return fmt.Errorf("%w: %s after %s", ErrEarlier, at.UTC().Format(time.RFC3339Nano), r.now.UTC().Format(time.RFC3339Nano))
	}
	r.now = at
	return r.decider.Decide(context.Background(), request, into)
}

// Stats returns the size of the counters. If a counter was evicted or an operation rejected,
// MaxKeys or MaxBytes was too small for the traffic, and the outcomes are not those of a larger
// server.
func (r *Replayer) Stats() memstore.Stats { return r.store.Stats() }
