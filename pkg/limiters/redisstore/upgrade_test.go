package redisstore

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/internal/redistest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
	"github.com/weir-rls/weir/pkg/limiters/redisstore/connect"
)

// A storedKey is a key of testdata/keys_w2.json. A version before penalties, leases and
// reservations wrote the key and the values, and decided then. They change only with the format of
// keys.
type storedKey struct {
	Name        string     `json:"name"`
	Algorithm   string     `json:"algorithm"`
	Params      string     `json:"params"`
	Max         int64      `json:"max"`
	WindowS     int64      `json:"window_s"`
	CountDenied bool       `json:"count_denied"`
	Hidden      bool       `json:"hidden"`
	Hits        [][2]int64 `json:"hits"`   // the time of each after logStart, in µs, and N
	Key         string     `json:"key"`    // the key of the user alice
	Values      []string   `json:"values"` // in hex: of a string, or of all elements of a list; of a funnel without its expiry
	Then        struct {
		Allowed      bool          `json:"allowed"`
		Used         int64         `json:"used"`
		Remaining    int64         `json:"remaining"`
		RetryAfterNS time.Duration `json:"retry_after_ns"`
		ResetAfterNS time.Duration `json:"reset_after_ns"`
	} `json:"then"` // the verdict of one more hit, 100 s after logStart
}

func (k *storedKey) limit(t *testing.T, further string) *limiters.Limit {
	t.Helper()
	params, err := limiters.ParseParams(k.Params + " " + further)
	must.Succeed(t, err)
	return limiterstest.MustLimit(limiters.Spec{
		Algorithm: k.Algorithm, Max: k.Max, Window: time.Duration(k.WindowS) * time.Second, CountDenied: k.CountDenied,
		Params: params,
	})
}

// write writes the key as the older version did.
func (k *storedKey) write(t *testing.T, c *redis.Client) {
	t.Helper()
	values := make([]any, len(k.Values))
	for i, text := range k.Values {
		value, err := hex.DecodeString(text)
		must.Succeed(t, err)
		if k.Algorithm == "funnel" {
			value = append(value, 0, 0, 0, 0)
		}
		values[i] = value
	}
	err := c.Set(t.Context(), k.Key, values[0], time.Hour).Err()
	if len(values) > 1 {
		c.Del(t.Context(), k.Key)
		err = c.RPush(t.Context(), k.Key, values...).Err()
	}
	must.Succeed(t, err)
}

// read returns the values in Redis, in the form of Values.
func (k *storedKey) read(t *testing.T, c *redis.Client) (values []string) {
	t.Helper()
	if len(k.Values) > 1 {
		for _, value := range c.LRange(t.Context(), k.Key, 0, -1).Val() {
			values = append(values, hex.EncodeToString([]byte(value)))
		}
		return values
	}
	value := c.Get(t.Context(), k.Key).Val()
	if k.Algorithm == "funnel" && len(value) == 28 {
		value = value[:24]
	}
	return []string{hex.EncodeToString([]byte(value))}
}

// In a rolling upgrade, replicas of the version before and of this one share the keys in Redis.
// This version writes the same bytes, and decides the same by them, even under limits with a
// penalty or reservations.
func TestReplicasOfTwoVersionsShareKeys(t *testing.T) {
	text := must.Read(t, "testdata/keys_w2.json")
	var stored []storedKey
	must.Succeed(t, json.Unmarshal(text, &stored))
	server := redistest.Start(t)
	c := server.Client(t)
	for _, k := range stored {
		t.Run(k.Name, func(t *testing.T) {
			o := Options{}
			if k.Hidden {
				o.KeySecret = secret
			}
			s := openAt(t, connect.Options{Addr: server.Addr}, o)
			charge := func(at time.Duration, limit *limiters.Limit, n int64) limiters.Verdict {
				t.Helper()
				out := make([]limiters.Verdict, 1)
				err := s.TakeAt(t.Context(), logStart.Add(at), limiters.Singles(limiters.Op{Key: "alice", Limit: limit, Hits: n}), out)
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out[0].Err)
				}
				return out[0]
			}
			decided := func(what, further string) {
				t.Helper()
				v, want := charge(100*time.Second, k.limit(t, further), 1), k.Then
				if v.Allowed != want.Allowed || v.Used != want.Used || v.Remaining != want.Remaining ||
					v.RetryAfter != want.RetryAfterNS || v.ResetAfter != want.ResetAfterNS {
					t.Errorf("%s: %+v, want %+v", what, v, want)
				}
			}
			c.FlushAll(t.Context())
			for _, h := range k.Hits {
				charge(time.Duration(h[0])*time.Microsecond, k.limit(t, ""), h[1])
			}
			if got := k.read(t, c); !slices.Equal(got, k.Values) || c.DBSize(t.Context()).Val() != 1 {
				t.Errorf("keys %q, %s has %q, want %q", c.Keys(t.Context(), "*").Val(), k.Key, got, k.Values)
			}
			decided("after its own hits", "")
			extras := []string{"", "penalty.after=9 penalty.within=1m penalty.for=2h"}
			if !k.CountDenied {
				extras = append(extras, "reserve.ttl=1m", extras[1]+" reserve.ttl=1m")
			}
			for _, extra := range extras {
				c.FlushAll(t.Context())
				k.write(t, c)
				decided("of the stored key, with "+extra, extra)
			}
		})
	}
}
