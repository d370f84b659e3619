package redisstore

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

const secret = "0123456789abcdef0123456789abcdef"

// opsOfUser returns an operation for each algorithm, on keys that contain a user's name.
func opsOfUser(user string) []limiters.Op {
	var ops []limiters.Op
	for _, name := range limiterstest.WindowedAlgorithms() {
		limit := limiterstest.MustLimit(limiters.Spec{Algorithm: name, Max: 5, Window: time.Hour})
		ops = append(ops,
			limiters.Op{Key: "5:realm|4:user=5:" + user, Limit: limit, Hits: 1},
			limiters.Op{Key: "5:realm|5:email=17:" + user + "@example.org", Limit: limit, Hits: 1})
	}
	return ops
}

func domainOfKey(key string) string {
	domain, _, _ := strings.Cut(key, "|")
	return domain
}

func TestHashedKeysPassTheSuite(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opened := func(t *testing.T) limiterstest.TimedStore {
		return openAt(t, connect.Options{Addr: server.Addr}, Options{KeySecret: secret})
	}
	limiterstest.RunReduced(t, func(t *testing.T) limiterstest.TimedStore {
		must.Succeed(t, server.Client(t).FlushAll(t.Context()).Err())
		return opened(t)
	})
	limiterstest.RunRaces(t, []limiters.Store{opened(t), opened(t), opened(t)})
}

func TestHashedKeysShowNoUserData(t *testing.T) {
	server := redistest.Start(t)
	c := server.Client(t)
	for _, tag := range []func(string) string{nil, domainOfKey} {
		s := openAt(t, connect.Options{Addr: server.Addr}, Options{KeyPrefix: "weir:", Tag: tag, KeySecret: secret})
		for _, user := range []string{"alice", "carol"} {
			if _, err := take(s, opsOfUser(user)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys := c.Keys(t.Context(), "*").Val()
	if want := 2 * (len(opsOfUser("alice")) + len(opsOfUser("carol"))); len(keys) != want {
		t.Errorf("%d keys, want %d: one for each limit, user and way of placing", len(keys), want)
	}
	for _, key := range keys {
		held := key + c.Dump(t.Context(), key).Val()
		for _, said := range []string{"alice", "carol", "user", "email", "example.org", "realm", secret} {
			if strings.Contains(held, said) {
				t.Errorf("%q holds %q", held, said)
			}
		}
		if !strings.HasPrefix(key, "weir:"+keyFormat+"h{") {
			t.Errorf("%q has lost its prefix or its format", key)
		}
	}
}

// A client may choose the id of its lease, and Redis stores the sum of the id.
func TestLeaseIDRevealsNoOtherSumUnderTheSecret(t *testing.T) {
	n := keyNamer{hasher: newKeyHasher(secret)}
	for _, op := range opsOfUser("alice") {
		id := limiters.NewLeaseID([]byte(secret), op.Key)
		if key := string(n.appendKey(nil, op.Key, op.Limit.StateID())); strings.Contains(key, base64.RawURLEncoding.EncodeToString(id[:])) {
			t.Errorf("the lease id %q is the hash in the key %s", op.Key, key)
		}
	}
	const purpose = "weir messages resets"
	if id := limiters.NewLeaseID([]byte(secret), purpose); bytes.HasPrefix(n.hasher.derive(purpose), id[:]) {
		t.Errorf("the lease id %q is a part of the key that encrypts messages", purpose)
	}
}

func TestOtherSecretMakesOtherKeys(t *testing.T) {
	server := redistest.Start(t)
	ops := opsOfUser("alice")
	for _, with := range []string{"", secret, secret[1:] + "x", strings.ToUpper(secret), secret + "\x01"} {
		for used := int64(1); used <= 2; used++ {
			out, err := take(openAt(t, connect.Options{Addr: server.Addr}, Options{KeySecret: with}), ops...)
			must.Succeed(t, err)
			for i, v := range out {
				if v.Used != used {
					t.Errorf("secret %q, take %d of %s: %d used, want %d", with, used, ops[i].Limit.StateID(), v.Used, used)
				}
			}
		}
	}
}

// A hashed key still contains the limit, has the hash slot of its key or tag, and differs from
// every readable key.
func TestHashedKeyKeepsItsSlot(t *testing.T) {
	funnel := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 1, Window: time.Hour})
	seen := map[string]string{}
	for _, tag := range []string{"", "a", "a}a", "3:ugc", "{"} {
		slotOfTag := -1
		for _, key := range []string{"", "k", "a}k", "}k", "a", "a}a}k", "{k", strings.Repeat("k", 10_000)} {
			names := keyNamer{keyPrefix: "p:", tag: func(string) string { return tag }, hasher: newKeyHasher(secret)}
			slot := -1
			for _, limit := range []*limiters.Limit{hourly, funnel} {
				op := limiters.Op{Key: key, Limit: limit}
				shown, hashed := keyNamer{keyPrefix: "p:", tag: names.tag}.key(&op), names.key(&op)
				what := fmt.Sprintf("%.20q of %q %s", key, tag, limit.StateID())
				for _, name := range []string{shown, hashed} {
					if seen[name] != "" {
						t.Errorf("%s and %s are both %.80q", seen[name], what, name)
					}
					seen[name] = what
				}
				if !strings.HasSuffix(hashed, "}"+limit.StateID()) || len(hashed) > 80 {
					t.Errorf("%s is %q", what, hashed)
				}
				if got := int(hashSlotOf(hashed)); slot >= 0 && got != slot {
					t.Errorf("%s is in slot %d, another limit of its key in %d", what, got, slot)
				}
				slot = int(hashSlotOf(hashed))
			}
			if tag != "" && slotOfTag >= 0 && slot != slotOfTag {
				t.Errorf("%.20q of %q is in slot %d, others of its tag in %d", key, tag, slot, slotOfTag)
			}
			slotOfTag = slot
		}
	}
}

func TestHashedKeyErrorsShowNoUserData(t *testing.T) {
	server := redistest.Start(t)
	s := openAt(t, connect.Options{Addr: server.Addr}, Options{KeySecret: secret})
	op := limiters.Op{Key: "4:user=5:alice", Limit: hourly, Hits: 1}
	server.Client(t).HSet(t.Context(), s.namer.key(&op), "a", "b")
	out, err := take(s, op)
	var key *KeyError
	if err != nil || !errors.As(out[0].Err, &key) {
		t.Fatalf("%+v, %v: want an error of the key", out[0], err)
	}
	if said := fmt.Sprintf("%+v %s", key, key.StoreKey()); strings.Contains(said, "alice") ||
		strings.Contains(said, secret) {
		t.Errorf("the error shows the key: %s", said)
	}
}

// The pool of MACs is not measured, because the race detector drops its entries at random.
func TestHashingAllocatesNothing(t *testing.T) {
	m := newKeyHasher(secret).macs.Get().(*mac)
	key, text := opsOfUser("alice")[0].Key, make([]byte, 0, 1024)
	if got := testing.AllocsPerRun(1000, func() { m.append(text, key) }); got > 0 {
		t.Errorf("%v allocations a key", got)
	}
}

// BenchmarkKeys measures the cost of making a key: readable and hashed, with and without a tag.
func BenchmarkKeys(b *testing.B) {
	limit := limiterstest.MustLimit(limiters.Spec{Algorithm: "funnel", Max: 10, Window: time.Minute})
	for _, size := range []int{1, 16} {
		ops := make([]limiters.Op, size)
		for i := range ops {
			ops[i] = limiters.Op{Key: fmt.Sprintf("3:ugc|7:user_id*12:user%08d|6:action=4:post", i), Limit: limit, Hits: 1}
		}
		groups := limiters.Singles(ops...)
		for name, n := range map[string]keyNamer{
			"shown": {}, "hashed": {hasher: newKeyHasher(secret)}, "hashed with a tag": {tag: domainOfKey, hasher: newKeyHasher(secret)},
		} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					n.keys(groups)
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N*size), "ns/hit")
			})
		}
	}
}
