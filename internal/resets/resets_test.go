package resets

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

// A channel calls each function with the messages that are published with a live context.
type channel struct {
	receivers []func([]byte)
	failures  int  // the number of messages to fail before others are sent
	connects  bool // Receive connects before the connection is lost
	received  int  // the number of calls of Receive
}

func (c *channel) Publish(ctx context.Context, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.failures > 0 {
		c.failures--
		return errors.New("the connection is lost")
	}
	for _, received := range c.receivers {
		received(message)
	}
	return nil
}

func (c *channel) Receive(_ context.Context, connected func(), _ func([]byte)) error {
	c.received++
	if c.connects {
		connected()
	}
	return errors.New("the connection is lost")
}

// A reset that fails, or whose caller has left, may have removed some states. The other replicas
// get both messages.
func TestFailedResetSendsBothMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		r := &Service{PubSub: &channel{receivers: []func([]byte){func([]byte) { n++ }}}}
		failed := errors.New("the store failed")
		call, leave := context.WithCancel(t.Context())
		begun := time.Now()
		_, err := r.resetAndNotify(call, message{Domain: "ugc", Entry: [2]string{"user_id", "42"}}, func() error {
			if n != 1 || time.Since(begun) != resetDelay {
				t.Errorf("the reset begins after %v and %d messages, want %v and 1", time.Since(begun), n, resetDelay)
			}
			leave()
			return failed
		})
		if !errors.Is(err, failed) {
			t.Errorf("error %v, want that of the reset", err)
		}
		if n != 2 {
			t.Errorf("%d messages, want 2", n)
		}
	})
}

// newReplica returns the resets of a replica, with a deny cache in front of a shared store, and
// with local counters. A call of take takes one hit of a key by the cache, and a call of local
// takes one by the local counters.
func newReplica(t *testing.T, shared *memstore.Store, c *channel) (r *Service, take, local func(key string) limiters.Verdict) {
	t.Helper()
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour})
	on := func(store limiters.Store) func(string) limiters.Verdict {
		return func(key string) limiters.Verdict {
			out := make([]limiters.Verdict, 1)
			must.Succeed(t, store.Take(t.Context(), limiters.Singles(limiters.Op{Key: key, Limit: limit, Hits: 1}), out))
			return out[0]
		}
	}
	counters, cache := memstore.New(memstore.Options{}), guard.NewDenyCache(shared, guard.DenyCacheOptions{MaxAge: time.Hour})
	r = &Service{
		Store: guard.NewFallback(cache, guard.FallbackOptions{Local: counters}), Local: counters, DenyCache: cache, PubSub: c,
		Warn:     func(what string, err error) { t.Errorf("warned of %s: %v", what, err) },
		Panicked: func(where string, value any) { t.Errorf("%s panicked: %v", where, value) },
	}
	c.receivers = append(c.receivers, r.received)
	return r, on(cache), on(counters)
}

// A reset by one replica removes the denials and the local counters of that key at the other, and
// no others.
func TestResetReachesOtherReplicas(t *testing.T) {
	b := descriptors.NewBuilder()
	b.Domain("ugc").Add(descriptors.NodeSpec{Entry: descriptors.Entry{Key: "user_id"}}).SetRule(descriptors.Rule{})
	rules := slices.Collect(b.Build().All())
	user := func(id string) string {
		return descriptors.Key("ugc", rules[0], []descriptors.Entry{{Key: "user_id", Value: id}})
	}
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "fixed_window", Max: 1, Window: time.Hour})
	for name, reset := range map[string]func(*Service) (notified bool, err error){
		"of a key": func(r *Service) (bool, error) {
			_, notified, err := r.Reset(t.Context(), []limiters.StateName{limit.StateName(user("42"))})
			return notified, err
		},
		"of an entry": func(r *Service) (bool, error) {
			_, notified, err := r.ResetByEntry(t.Context(), "ugc", descriptors.Entry{Key: "user_id", Value: "42"}, "")
			return notified, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var messages channel
			shared := memstore.New(memstore.Options{})
			one, _, _ := newReplica(t, shared, &messages)
			_, take, local := newReplica(t, shared, &messages)
			for range 3 {
				for _, id := range []string{"42", "7"} {
					take(user(id))
					local(user(id))
				}
			}
			if v := take(user("42")); v.Allowed || v.By != limiters.ByCache {
				t.Fatalf("%+v, want a denial by the cache", v)
			}
			if notified, err := reset(one); !notified || err != nil {
				t.Errorf("notified: %v, %v", notified, err)
			}
			if v := take(user("42")); !v.Allowed {
				t.Errorf("after the reset: %+v", v)
			}
			if v := local(user("42")); !v.Allowed {
				t.Errorf("by the local counters, after the reset: %+v", v)
			}
			if v := take(user("7")); v.Allowed || v.By != limiters.ByCache {
				t.Errorf("another key: %+v, want a denial by the cache", v)
			}
			if v := local(user("7")); v.Allowed {
				t.Errorf("another key, by the local counters: %+v, want a denial", v)
			}
		})
	}
}

// Without the first message, denied hits that a replica holds may arrive after the reset.
func TestResetWithoutItsFirstMessageIsNotNotified(t *testing.T) {
	var warned error
	r := &Service{PubSub: &channel{failures: 1}, Warn: func(_ string, err error) { warned = err }}
	notified, err := r.resetAndNotify(t.Context(), message{Domain: "ugc"}, func() error { return nil })
	if notified || err != nil || warned == nil {
		t.Errorf("notified: %v, error %v, warned of %v; want a warning and no notification", notified, err, warned)
	}
}

// A rejecting store rejects resets by an entry, as Redis does if it has hashes of keys only.
type rejecting struct {
	limiters.Store
	err error
}

func (s rejecting) ResetMatching(context.Context, func(string) bool, string) (limiters.Progress, error) {
	return limiters.Progress{}, s.err
}

// The audit log of the admin API promises that a rejected reset has changed nothing. A user at a
// limit would otherwise get a new share of it on each replica.
func TestRejectedResetKeepsLocalCounters(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		cursor string
	}{
		"hashed keys":       {limiters.ErrHashedKeys, ""},
		"an unknown cursor": {limiters.ErrCursor, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			var messages channel
			shared := memstore.New(memstore.Options{})
			one, _, localOfOne := newReplica(t, shared, &messages)
			_, _, localOfOther := newReplica(t, shared, &messages)
			one.Store = guard.NewFallback(rejecting{shared, c.err}, guard.FallbackOptions{Local: one.Local})
			locals := map[string]func(string) limiters.Verdict{"its own": localOfOne, "the other replica's": localOfOther}
			const key = "3:ugc|7:user_id*2:42"
			for _, local := range locals {
				local(key)
			}
			if _, _, err := one.ResetByEntry(t.Context(), "ugc", descriptors.Entry{Key: "user_id", Value: "42"}, c.cursor); !errors.Is(err, c.err) {
				t.Errorf("error %v, want %v", err, c.err)
			}
			for name, local := range locals {
				if v := local(key); v.Allowed {
					t.Errorf("%s local counter was reset: %+v", name, v)
				}
			}
		})
	}
}

func TestUnknownMessageIsReported(t *testing.T) {
	for _, text := range []string{"", "{", "{}", `{"domain":"ugc"}`, `{"entry":["",""]}`, `{"entry":["user_id","42"],"domain":1}`} {
		var warned error
		r := &Service{Warn: func(_ string, err error) { warned = err }}
		r.received([]byte(text))
		if !errors.Is(warned, ErrMessage) {
			t.Errorf("%q: %v, want ErrMessage", text, warned)
		}
	}
}

func TestPanicOfAMessageIsReported(t *testing.T) {
	var panicked string
	r := &Service{Panicked: func(where string, _ any) { panicked = where }} // no local counters
	r.received([]byte(`{"entry":["user_id","42"]}`))
	if panicked != "reset message" {
		t.Errorf("reported %q, want the panic of a reset message", panicked)
	}
}

func TestResetWithoutOtherReplicasIsNotified(t *testing.T) {
	r := &Service{Store: memstore.New(memstore.Options{})}
	r.Run(t.Context()) // ends at once
	if _, notified, err := r.Reset(t.Context(), nil); !notified || err != nil {
		t.Errorf("notified: %v, %v", notified, err)
	}
}

// A replica may have missed the resets of any key before it connects.
func TestNewConnectionClearsTheDenyCache(t *testing.T) {
	r, take, _ := newReplica(t, memstore.New(memstore.Options{}), &channel{connects: true})
	for range 3 {
		take("k")
	}
	if v := take("k"); v.By != limiters.ByCache {
		t.Fatalf("%+v, want a denial by the cache", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
	if v := take("k"); v.Allowed || v.By == limiters.ByCache {
		t.Errorf("%+v, want a denial by the store", v)
	}
}

// A lost channel is reported once, at the second attempt, and Run ends with its context. A channel
// that connects each time is not reported.
func TestLostChannelIsReportedOnce(t *testing.T) {
	for connects, want := range map[bool][]int{false: {2}, true: nil} {
		synctest.Test(t, func(t *testing.T) {
			c, warned := &channel{connects: connects}, []int(nil)
			r := &Service{
				PubSub: c, Warn: func(string, error) { warned = append(warned, c.received) },
				DenyCache: guard.NewDenyCache(memstore.New(memstore.Options{}), guard.DenyCacheOptions{}),
			}
			defer func() { must.Succeed(t, r.DenyCache.Close(t.Context())) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			r.Run(ctx)
			if !slices.Equal(warned, want) {
				t.Errorf("connects: %t, warned after the attempts %v, want %v", connects, warned, want)
			}
		})
	}
}
