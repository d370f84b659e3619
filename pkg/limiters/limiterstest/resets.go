package limiterstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/pkg/limiters"
)

// resettable are limits of which a key can use up every part: usage, penalty and leases.
func resettable() []limiters.Spec {
	specs := []limiters.Spec{{Algorithm: "concurrency", Max: 2, Params: limiters.Params{LeaseTTL: time.Hour}}}
	for _, name := range WindowedAlgorithms() {
		first := FirstHitParams(name)
		plain := limiters.Spec{Algorithm: name, Max: 2, Window: time.Hour, Params: first}
		penalty, reserve := plain, plain
		penalty.Params.Penalty = limiters.PenaltySpec{After: 1, Within: time.Hour, For: 2 * time.Hour}
		reserve.Params.Reserve.TTL = time.Hour
		specs = append(specs, plain, penalty, reserve)
	}
	return specs
}

// testResets checks that a key that was reset is like one never used, and that other keys keep
// their states. It checks that an invalid cursor is an error. The time is the store's.
func testResets(t *testing.T, store limiters.Store) {
	ctx := context.Background()
	_, err := store.ResetMatching(ctx, func(string) bool { return false }, "invalid")
	if want := limiters.ErrCursor; canMatch(store) && !errors.Is(err, want) {
		t.Errorf("an invalid cursor: %v, want %v", err, want)
	}
	for n, spec := range resettable() {
		limit := MustLimit(spec)
		take := func(key string, lease byte) limiters.Verdict {
			t.Helper()
			op := limiters.Op{Key: key, Limit: limit, Hits: 1}
			if limit.UsesLeases() {
				op.Lease = limiters.LeaseID{lease}
			}
			out, err := Take(store, limiters.Group{op})
			if err != nil || out[0].Err != nil {
				t.Fatal(spec, err, out[0].Err)
			}
			return out[0]
		}
		key, other := fmt.Sprintf("1:d|4:user=2:a%d", n%10), fmt.Sprintf("1:d|4:user=2:b%d", n%10)
		for round, reset := range []func() bool{
			func() bool {
				found, err := store.Reset(ctx, []limiters.StateName{limit.StateName(key), limit.StateName("never used")})
				if err != nil || len(found) != 2 || found[1] {
					t.Fatalf("%+v: Reset of a used and an unused state: found %v, error %v, want 2 values, the second false", spec, found, err)
				}
				return found[0]
			},
			func() bool { return MustResetMatching(t, store, func(k string) bool { return k == key }).Reset > 0 },
		} {
			if round > 0 && !canMatch(store) {
				continue
			}
			for i := range byte(4) {
				take(key, 1+i)
				take(other, 1+i)
			}
			if v := take(key, 9); v.Allowed {
				t.Fatalf("%+v, 9 hits before reset %d: got %+v, want denied", spec, round, v)
			}
			if !reset() {
				t.Errorf("%+v, round %d: a key that was used up is not found", spec, round)
			}
			if v := take(key, 1); !v.Allowed || v.Used != 1 || v.Penalized {
				t.Errorf("%+v, round %d: after a reset: %+v", spec, round, v)
			}
			if v := take(key, 2); !v.Allowed || v.Used != 2 {
				t.Errorf("%+v, round %d: after a reset: %+v", spec, round, v)
			}
			if v := take(other, 9); v.Allowed {
				t.Errorf("%+v, round %d: the reset of one key admits another: %+v", spec, round, v)
			}
			if reset(); reset() {
				t.Errorf("%+v, round %d: a key without a state is found", spec, round)
			}
		}
	}
}

// canMatch reports whether a store has the texts of its keys.
func canMatch(store limiters.Store) bool {
	_, err := store.ResetMatching(context.Background(), func(string) bool { return false }, "")
	return !errors.Is(err, limiters.ErrHashedKeys)
}

// MustResetMatching makes a whole pass.
func MustResetMatching(t *testing.T, store limiters.Store, match func(key string) bool) (all limiters.Progress) {
	t.Helper()
	for first := true; first || all.Cursor != ""; first = false {
		done, err := store.ResetMatching(context.Background(), match, all.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = limiters.Progress{Scanned: all.Scanned + done.Scanned, Reset: all.Reset + done.Reset, Cursor: done.Cursor}
	}
	return all
}

// randomResets is [RunRandom] with resets and inspections of keys between the calls.
func (s suite) randomResets(t *testing.T, store TimedStore) {
	for n, generate := range []func(string, uint64) *Generator{NewGenerator, NewPenaltyGenerator, NewLeaseGenerator} {
		for _, name := range WindowedAlgorithms() {
			for seed := range Seeds(max(s.sequences/4, 1)) {
				resetting := func(wrapped TimedStore) *resettingStore {
					return &resettingStore{TimedStore: wrapped, rnd: rand.New(rand.NewPCG(seed, 7)), canMatch: canMatch(store)}
				}
				tested, reference := resetting(store), resetting(s.newReference())
				Agree(t, generate(name, 1000*uint64(n+1)+seed), sequenceSteps, tested, reference)
				for i, want := range reference.inspected {
					if got := tested.inspected[i]; got != want {
						t.Fatalf("seed %d of %s, inspection %d:\n got %s\nwant %s", seed, name, i, Format(got), Format(want))
					}
				}
			}
		}
	}
}

// A resettingStore is a Store that resets and inspects some keys before a Take. Two of them with
// equal seeds do the same.
type resettingStore struct {
	TimedStore
	rnd       *rand.Rand
	canMatch  bool
	inspected []limiters.Verdict
}

func (r *resettingStore) TakeAt(ctx context.Context, now time.Time, groups []limiters.Group, out []limiters.Verdict) error {
	op := groups[r.rnd.IntN(len(groups))][0]
	if r.rnd.IntN(3) == 0 {
		inspection := slices.Clone(groups[r.rnd.IntN(len(groups))])
		for i := range inspection {
			inspection[i].Kind = limiters.OpInspect
		}
		verdicts := make([]limiters.Verdict, len(inspection))
		if err := r.TimedStore.TakeAt(ctx, now, []limiters.Group{inspection}, verdicts); err != nil {
			return err
		}
		r.inspected = append(r.inspected, verdicts...)
	}
	switch r.rnd.IntN(8) {
	case 0:
		if _, err := r.TimedStore.Reset(ctx, []limiters.StateName{op.Limit.StateName(op.Key)}); err != nil {
			return err
		}
	case 1:
		if !r.canMatch {
			break
		}
		prefix := strings.Clone(op.Key[:len(op.Key)/2])
		cursor := ""
		for {
			done, err := r.TimedStore.ResetMatching(ctx, func(key string) bool { return strings.HasPrefix(key, prefix) }, cursor)
			if err != nil {
				return err
			}
			cursor = done.Cursor
			if cursor == "" {
				break
			}
		}
	}
	return r.TimedStore.TakeAt(ctx, now, groups, out)
}
