package topkeys

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile/rulesfiletest"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/memstore"
)

const rulesText = `
domain: shop
descriptors:
  - {key: user_id, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - key: ip
    descriptors:
      - {key: action, value: login, rate_limit: {unit: hour, requests_per_unit: 1000000}}
`

// A fixture is a Counter of the decisions of a decider in memory.
type fixture struct {
	*Counter
	tb      testing.TB
	decider *decide.Decider
}

func counting(tb testing.TB, size int, keyHashSecret string) *fixture {
	tb.Helper()
	rules := rulesfiletest.Parse(tb, rulesText)
	load := func() *descriptors.Rules { return rules }
	return &fixture{New(size, []byte(keyHashSecret)), tb, decide.New(load, memstore.New(memstore.Options{}), decide.Options{})}
}

// decide decides hits of one descriptor, such as "user_id=42 action=login", and counts the result.
func (f *fixture) decide(hits int64, text string) *decide.Result {
	f.tb.Helper()
	d := decide.Descriptor{Entries: rulesfiletest.Entries(text), Hits: hits}
	request, result := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{d}}, &decide.Result{}
	must.Succeed(f.tb, f.decider.Decide(context.Background(), &request, result))
	f.Add(result)
	return result
}

// list returns the keys of a Top as "domain rule entries count±error".
func (f *fixture) list(by api.TopOrder, domain string, n int) (lines []string) {
	for _, k := range f.Top(by, domain, n).Keys {
		lines = append(lines, fmt.Sprint(k.Domain, " ", k.Rule, " ", k.Key, " ", k.Count, "±", k.Error))
	}
	return lines
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTopListsBusiestAndMostDeniedKeys(t *testing.T) {
	f := counting(t, 10, "")
	for range 5 {
		f.decide(1, "user_id=42")
	}
	f.decide(7, "ip=10.0.0.1 action=login")
	f.decide(0, "user_id=42")  // a denied peek
	f.decide(0, "user_id=43")  // an allowed peek
	f.decide(-9, "user_id=44") // a refund
	f.decide(2, "shadow=x")    // denied in shadow mode
	f.decide(100, "free=x")    // unlimited
	f.decide(100, "unknown=x") // no rule
	expect(t, f.list(api.ByHits, "", 10), "shop ip.action=login [ip=10.0.0.1 action=login] 7±0", "shop user_id [user_id=42] 5±0",
		"shop shadow [shadow=x] 2±0")
	expect(t, f.list(api.ByHits, "shop", 1), "shop ip.action=login [ip=10.0.0.1 action=login] 7±0")
	expect(t, f.list(api.ByHits, "other", 10))
	expect(t, f.list(api.ByDenied, "", 10), "shop user_id [user_id=42] 3±0", "shop shadow [shadow=x] 2±0")
	if top := f.Top(api.ByHits, "", 1); top.Total != 14 || top.Error != 0 || top.Keys[0].KeyHash != descriptors.KeyHash(nil, "4:shop|2:ip*8:10.0.0.1|6:action=5:login") {
		t.Errorf("%+v, want an exact total of 14, and first the address 10.0.0.1", top)
	}
}

// A request that carries its limit has a key of all its entries.
func TestLongKeysAreNotCounted(t *testing.T) {
	f := counting(t, 10, "")
	for _, count := range []int{1, 8} { // entries of 200 bytes
		d := decide.Descriptor{Hits: 1, Override: &decide.Override{RequestsPerUnit: 5, Unit: descriptors.Hour}}
		for i := range count {
			d.Entries = append(d.Entries, descriptors.Entry{Key: fmt.Sprintf("%0100d", i), Value: strings.Repeat("v", 100)})
		}
		request, result := decide.Request{Domain: "shop", Descriptors: []decide.Descriptor{d}}, &decide.Result{}
		must.Succeed(t, f.decider.Decide(t.Context(), &request, result))
		f.Add(result)
	}
	if lines := f.list(api.ByHits, "", 10); len(lines) != 1 {
		t.Errorf("listed %q, want only the short key", lines)
	}
}

// KEY_HASH_SECRET hides keys in Redis, so nothing else may show them.
func TestKeysAreHashedUnderASecret(t *testing.T) {
	const secret = "a secret of 16 bytes"
	f := counting(t, 10, secret)
	f.decide(1, "user_id=alice")
	hash := descriptors.KeyHash([]byte(secret), "4:shop|7:user_id*5:alice")
	if text := fmt.Sprintf("%+v", f.Top(api.ByHits, "", 1)); strings.Contains(text, "alice") || !strings.Contains(text, hash) {
		t.Errorf("want the hash %s and no value: %s", hash, text)
	}
}

// Counts are those of the current window and of the last one.
func TestKeyCountsCoverCurrentAndLastWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := counting(t, 10, "")
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { f.Run(ctx) })
		synctest.Wait()
		start := time.Now()
		since := func() time.Duration {
			return f.Top(api.ByHits, "", 1).Since.Sub(start)
		}
		f.decide(1, "user_id=1")
		time.Sleep(windowLength + time.Second)
		synctest.Wait()
		f.decide(2, "user_id=2")
		f.decide(2, "user_id=1")
		expect(t, f.list(api.ByHits, "", 10), "shop user_id [user_id=1] 3±0", "shop user_id [user_id=2] 2±0")
		if since() != 0 {
			t.Errorf("counts since %v, want the start", since())
		}
		time.Sleep(windowLength)
		synctest.Wait()
		f.decide(1, "user_id=3")
		got := f.list(api.ByHits, "", 10)
		slices.Sort(got)
		expect(t, got, "shop user_id [user_id=1] 2±0", "shop user_id [user_id=2] 2±0", "shop user_id [user_id=3] 1±0")
		if since() != windowLength {
			t.Errorf("counts since %v, want %v", since(), windowLength)
		}
		time.Sleep(2 * windowLength)
		synctest.Wait()
		expect(t, f.list(api.ByHits, "", 10))
		cancel()
		ended.Wait()
	})
}

func TestCountsSaturate(t *testing.T) {
	f := counting(t, 1, "")
	for range 2 {
		for range math.MaxUint64/limiters.MaxHits + 1 {
			f.decide(limiters.MaxHits, "user_id=42")
		}
		f.beginWindow(time.Now())
		f.decide(1, "user_id=42")
		if top := f.Top(api.ByHits, "", 1); top.Total != math.MaxInt64 || top.Keys[0].Count != math.MaxInt64 {
			t.Errorf("%+v, want the largest numbers", top)
		}
	}
}

func TestTopUnderLoad(t *testing.T) {
	f := counting(t, 10, "")
	ctx, cancel := context.WithCancel(context.Background())
	var load sync.WaitGroup
	for worker := range 4 {
		load.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f.decide(1, fmt.Sprint("user_id=", (i+worker)%20))
			}
		})
	}
	for range 200 {
		f.Top(api.ByDenied, "", 3)
		f.beginWindow(time.Now())
	}
	cancel()
	load.Wait()
}

func TestAddDoesNotAllocate(t *testing.T) {
	f := counting(t, 100, "")
	r := f.decide(1, "user_id=42")
	if n := testing.AllocsPerRun(100, func() { f.Add(r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
