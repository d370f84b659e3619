// Package redisstore is a limiters.Store on Redis or Valkey, shared by any number of replicas and exact across them: all
// hits of a call are decided by one script, at one time, the server's own (TIME). It is one Redis, one that Sentinels
// watch, or a cluster, where the hits of each slot are decided so.
//
// A call is sent at most once. Only what is known not to have run is sent again: a NOSCRIPT, and in a cluster a MOVED,
// an ASK and a TRYAGAIN; after a lost connection or a deadline that passed, the hits are answered with an error and may
// have been charged.
//
// Who comes while a call is under way goes in the next one, together with all others who do: see lane. A call carries its
// deadline by the server's clock and charges nothing when it comes to run later: see clock.
//
// The store knows no algorithm: a limit names its own and gives its numbers, and the script of pkg/redisscripts does the
// rest.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
	"github.com/weir-rls/weir/pkg/redisscripts"
)

// A Store keeps the states of keys in Redis.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // the same client, of a cluster
	where   string               // for errors
	script  script
	names   naming
	lane    *lane  // of a single Redis, or of a master
	clock   *clock // its
	nodes   *nodes // of a cluster
	counts  counts
	way     *recovery     // of the lane
	timeout time.Duration // of a Take
	connect time.Duration // of what may have to connect first, and is in no hurry

	life       context.Context // until Close
	end        context.CancelFunc
	recoveries sync.WaitGroup
}

// New makes a Store. It does not connect: the first call does. Close it when no call is under way any more.
func New(c connect.Options, o Options) *Store {
	c, o = c.WithDefaults(), o.withDefaults()
	s := &Store{
		client:  c.Open(),
		where:   c.String(),
		script:  newScript(redisscripts.Batch(redisscripts.Algorithms...)),
		names:   naming{o.Prefix, o.Tag, newHider(o.KeySecret)},
		clock:   newClock(),
		timeout: c.Timeout,
		connect: max(c.Timeout, c.DialTimeout),
	}
	s.cluster, _ = s.client.(*redis.ClusterClient)
	s.life, s.end = context.WithCancel(context.Background())
	s.way = s.newRecovery()
	newLane := func(d decide) *lane {
		return &lane{decide: d, timeout: s.timeout, most: o.MaxBatch, bound: o.MaxWaiting, counts: &s.counts}
	}
	s.lane = newLane(s.decide)
	s.nodes = &nodes{store: s, newLane: newLane, lanes: map[string]*lane{}}
	return s
}

func (s *Store) newRecovery() *recovery {
	return &recovery{life: s.life, done: &s.recoveries, connect: s.connect}
}

// Close closes the connections.
func (s *Store) Close() error {
	s.lane.served.Wait()
	s.nodes.wait()
	s.end()
	s.recoveries.Wait()
	return s.client.Close()
}

// ErrTooMany is the error of a Take of more hits than a call can carry.
var ErrTooMany = fmt.Errorf("redisstore: more than %d hits in one Take", mostHits)

// Take implements limiters.Store. It waits for the timeout of Options at most.
func (s *Store) Take(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	if len(out) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(out) > mostHits {
		return ErrTooMany
	}
	var err error
	if s.cluster != nil {
		err = s.nodes.take(ctx, now, groups, out)
		for i := range out {
			out[i].Err = explained(out[i].Err)
		}
	} else {
		err = s.lane.Take(ctx, now, groups, out)
	}
	if err != nil {
		return fmt.Errorf("redisstore: take of %d hits at %s: %w", len(out), s.where, explained(err))
	}
	return nil
}

// Stats are what a Store has done.
type Stats struct {
	Calls, Hits int64 // made, and the hits in them: how many requests travel together is their ratio
	Refused     int64 // hits that failed with ErrBusy
	Left        int64 // hits whose Take gave up waiting before they were sent, uncharged
	Broken      int64 // hits that failed with ErrBroken
}

// Stats tells what the store has done.
func (s *Store) Stats() Stats {
	return Stats{
		Calls: s.counts.calls.Load(), Hits: s.counts.hits.Load(),
		Refused: s.counts.refused.Load(), Left: s.counts.left.Load(),
		Broken: s.counts.broken.Load(),
	}
}

// decide decides hits by one call of the only Redis there is.
func (s *Store) decide(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	b := borrowBatch(now, groups, s.names)
	defer b.giveBack()
	r, err := s.script.run(ctx, s.client, s.clock, b)
	if err != nil {
		s.way.after(err, s.client)
		return err
	}
	return b.read(r, out)
}

// explained is what an error says to people. Of go-redis some say nothing: only Sentinels give an empty answer. Of Redis some
// say too much: a command that it does not know, AUTH or a script, it repeats with the password, or the keys.
func explained(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, redis.Nil) {
		return fmt.Errorf("the Sentinels know no master of that name: %w", err)
	}
	if text, _, more := strings.Cut(err.Error(), ", with args beginning with"); more {
		return &cutError{text, err}
	}
	return err
}

// A cutError is an error that shows less of itself.
type cutError struct {
	text string
	err  error
}

func (e *cutError) Error() string { return e.text }
func (e *cutError) Unwrap() error { return e.err }
