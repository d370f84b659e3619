package ratelimitstats

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

func TestSeriesPastBoundCountAsOther(t *testing.T) {
	m := newStats(Options{})
	m.byDescriptor.max = 3
	for i := range 100 {
		m.Observe(hit(nil, "d", fmt.Sprintf("user=%d", i)))
	}
	m.Observe(hit(nil, "e", "user=0"))
	m.Observe(hit(nil, "d", "user=1"))
	if a, b, c := total(m, "d", "user_1"), total(m, "d", "other"), total(m, "e", "other"); a != 2 || b != 97 || c != 1 {
		t.Errorf("user_1 %d, other %d, other of e %d, want 2, 97 and 1", a, b, c)
	}
	if n := m.byDescriptor.len(); n != 5 {
		t.Errorf("%d series, want 3 and a shared one for each domain", n)
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP weir_metrics_overflow_total Number of counts that went to key1="other" or domain="other", because the ratelimit_service series reached their bound.
# TYPE weir_metrics_overflow_total counter
weir_metrics_overflow_total 98
`), "weir_metrics_overflow_total"); err != nil {
		t.Error(err)
	}
}

func TestIdleSeriesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStats(Options{})
		m.byDescriptor.max = 2
		m.unknownDomains.get("old", nil, descriptors.RuleID{Domain: "old"})
		m.Observe(hit(nil, "d", "old=1"))
		m.Observe(hit(nil, "d", "busy=1"))
		m.Observe(hit(nil, "d", "late=1"))
		for range 4 {
			time.Sleep(maxIdle / 3)
			m.Observe(hit(nil, "d", "busy=1"))
			_, err := m.Registry.Gather()
			must.Succeed(t, err)
		}
		if n := m.unknownDomains.len(); n != 0 {
			t.Errorf("%d unknown domains, want none", n)
		}
		if a, b, c := total(m, "d", "old_1"), total(m, "d", "busy_1"), total(m, "d", "other"); a != -1 || b != 5 || c != -1 {
			t.Errorf("old %d, busy %d, other %d, want busy alone", a, b, c)
		}
		m.Observe(hit(nil, "d", "late=1"))
		if got := total(m, "d", "late_1"); got != 1 {
			t.Errorf("late %d, want 1", got)
		}
		// A full table searches for idle series by itself, at most once per sweepInterval.
		time.Sleep(2 * maxIdle)
		m.Observe(hit(nil, "d", "busy=1"))
		m.Observe(hit(nil, "d", "new=1"))
		if got := total(m, "d", "new_1"); got != -1 {
			t.Errorf("new %d before any series is known to be idle, want -1", got)
		}
		time.Sleep(maxIdle)
		m.Observe(hit(nil, "d", "new=1"))
		if got := total(m, "d", "new_1"); got != 1 {
			t.Errorf("new %d, want 1", got)
		}
	})
}

const dayLimit = `rate_limit: {unit: day, requests_per_unit: 1000000}`

// While the table is full a rule counts on the shared series. It gets a series of its own as soon
// as there is room.
func TestRuleGetsSeriesAfterOthersExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStats(Options{})
		m.byDescriptor.max = 1
		rules := loaded(t, "domain: d\ndescriptors: [{key: a, "+dayLimit+"}, {key: b, "+dayLimit+"}]")
		m.Loaded(rules, nil)
		for range 3 {
			m.Observe(hit(rules, "d", "a=1"))
			m.Observe(hit(rules, "d", "b=1"))
		}
		if a, b, other, over := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "other"), m.byDescriptor.overflows.Load(); a != 3 ||
			b != -1 || other != 3 || over != 3 {
			t.Errorf("a %d, b %d, other %d, %d overflows, want 3, none, 3 and 3", a, b, other, over)
		}
		m.byDescriptor.sweep() // notes the count of a
		for range 3 {
			time.Sleep(maxIdle / 3)
			m.Observe(hit(rules, "d", "b=1"))
		}
		if a, b, other := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "other"); a != -1 || b != 1 || other != 5 {
			t.Errorf("a %d, b %d, other %d, want none, 1 and 5", a, b, other)
		}
		m.Observe(hit(rules, "d", "b=1"))
		if b := total(m, "d", "b"); b != 2 {
			t.Errorf("b %d, want 2", b)
		}
	})
}

// After a scrape has dropped a series, a rule on the shared series does not wait for the next
// search of the table.
func TestRuleGetsSeriesAfterAScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStats(Options{})
		m.byDescriptor.max = 1
		rules := loaded(t, "domain: d\ndescriptors: [{key: a, "+dayLimit+"}, {key: b, "+dayLimit+"}]")
		m.Loaded(rules, nil)
		m.Observe(hit(rules, "d", "a=1"))
		m.byDescriptor.sweep() // notes the count of a
		time.Sleep(maxIdle - sweepInterval/2)
		m.Observe(hit(rules, "d", "b=1")) // searches the table
		time.Sleep(sweepInterval / 2)
		m.byDescriptor.sweep()
		m.Observe(hit(rules, "d", "b=1"))
		if a, b, other := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "other"); a != -1 || b != 1 || other != 1 {
			t.Errorf("a %d, b %d, other %d, want none, 1 and 1", a, b, other)
		}
	})
}

// Instances must not share what they cache for a rule.
func TestTwoInstancesCountTheSameRules(t *testing.T) {
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, "+dayLimit+"}]")
	one, two := newStats(Options{}), newStats(Options{})
	for range 3 {
		one.Observe(hit(rules, "d", "a=1"))
		two.Observe(hit(rules, "d", "a=1"))
	}
	for _, m := range []*fixture{one, two} {
		if n := total(m, "d", "a"); n != 3 {
			t.Errorf("%d, want 3", n)
		}
	}
}

// A rule must not count on a series that has expired.
func TestRuleCountsAgainAfterItsSeriesExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newStats(Options{})
		rules := loaded(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
		m.Loaded(rules, nil)
		for range 3 {
			m.Observe(hit(rules, "d", "a=1"))
		}
		m.byDescriptor.sweep()
		time.Sleep(maxIdle)
		m.byDescriptor.sweep()
		if got := m.byDescriptor.len(); got != 0 {
			t.Fatalf("%d series, want 0", got)
		}
		for range 2 {
			m.Observe(hit(rules, "d", "a=1"))
		}
		if got := total(m, "d", "a"); got != 2 {
			t.Errorf("%d, want 2", got)
		}
	})
}

func TestReloadKeepsSeriesOfUnchangedRules(t *testing.T) {
	m := newStats(Options{})
	const limit = `, rate_limit: {unit: day, requests_per_unit: 1}}`
	load := func(text string) *descriptors.Rules {
		rules := loaded(t, text)
		m.Loaded(rules, nil)
		return rules
	}
	both := "domain: d\ndescriptors: [{key: a" + limit + ", {key: b" + limit + "]"
	rules := load(both)
	for range 2 {
		m.Observe(hit(rules, "d", "a=1"))
		m.Observe(hit(rules, "d", "b=1"))
		m.Observe(hit(rules, "d", "own=1"))
	}
	rules = load(both)
	m.Observe(hit(rules, "d", "a=1"))
	m.Loaded(nil, errors.New("a bad file"))
	if a, b, o := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "own_1"); a != 3 || b != 2 || o != 2 {
		t.Errorf("after the same rules: a %d, b %d, own %d, want 3, 2 and 2", a, b, o)
	}
	load("domain: d\ndescriptors: [{key: b" + limit + "]")
	if a, b, o := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "own_1"); a >= 0 || b != 2 || o != 2 {
		t.Errorf("without a: a %d, b %d, own %d, want none, 2 and 2", a, b, o)
	}
	load("domain: other")
	if got := m.byDescriptor.len(); got != 0 {
		t.Errorf("without the domain: %d series, want 0", got)
	}
}

// Two rules may share a series, because envoyproxy/ratelimit joins keys and values with an
// underscore. The series stays while one of the rules does.
func TestSharedSeriesStaysWhileOneRuleStays(t *testing.T) {
	m := newStats(Options{})
	const limit = `, rate_limit: {unit: day, requests_per_unit: 1}}`
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, value: b"+limit+", {key: a_b"+limit+"]")
	m.Loaded(rules, nil)
	m.Observe(hit(rules, "d", "a_b="))
	m.Observe(hit(rules, "d", "a=b"))
	if got := total(m, "d", "a_b"); got != 2 {
		t.Fatalf("%d, want 2", got)
	}
	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: a, value: b"+limit+"]"), nil)
	if got := total(m, "d", "a_b"); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestErrorsAreRedisErrorOrServiceError(t *testing.T) {
	m := newStats(Options{})
	decisions := hit(nil, "d", "a=1").Decisions
	decisions[0].Verdicts = []limiters.Verdict{{Err: errors.New("broken")}}
	for _, code := range []codes.Code{
		codes.OK, codes.Canceled, codes.Unavailable, codes.DeadlineExceeded, codes.Unavailable,
	} {
		m.Observe(&rls.Observation{Code: code, Result: decide.Result{Decisions: decisions, StoreErr: decisions[0].Verdicts[0].Err}})
	}
	for _, code := range []codes.Code{
		codes.OK, codes.Canceled, codes.InvalidArgument, codes.Unavailable, codes.Internal, codes.InvalidArgument,
	} {
		m.Observe(&rls.Observation{Code: code})
	}
	m.Loaded(nil, errors.New("a bad file"))
	m.Loaded(nil, nil)
	m.Loaded(nil, nil)
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP ratelimit_service_config_load_error Number of failed loads of rules. The previous rules stay in force.
# TYPE ratelimit_service_config_load_error counter
ratelimit_service_config_load_error 1
# HELP ratelimit_service_config_load_success Number of successful loads of rules.
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 2
# HELP ratelimit_service_should_rate_limit_error Number of requests that failed. The label err_type is redis_error if the store failed, else service_error.
# TYPE ratelimit_service_should_rate_limit_error counter
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 3
ratelimit_service_should_rate_limit_error{err_type="service_error"} 4
`), "ratelimit_service_should_rate_limit_error", "ratelimit_service_config_load_error",
		"ratelimit_service_config_load_success"); err != nil {
		t.Error(err)
	}
}

func TestUnknownDomainSeriesAreBounded(t *testing.T) {
	m := newStats(Options{NearLimitRatio: .5})
	for i := range 3 * maxDomains {
		m.Observe(&rls.Observation{Result: decide.Result{PlannedRequest: decide.PlannedRequest{UnknownDomain: true, Domain: fmt.Sprintf("made up:%03d", i)}, Shadowed: i == 0}})
	}
	all := measured(t, m, "ratelimit_service_rate_limit_domain_not_found")
	if n := all["domain=made up_007"].count; n != 1 {
		t.Errorf("one domain: %v, want 1", n)
	}
	if n := all["domain=other"].count; n != 2*maxDomains || len(all) != maxDomains+1 {
		t.Errorf("other domains: %v, of %d series", n, len(all))
	}
	if got := m.shadowed.n.Load(); got != 1 {
		t.Errorf("global shadow mode: %d, want 1", got)
	}
	m.Loaded(loaded(t, "domain: made up:007"), nil)
	if _, found := measured(t, m, "ratelimit_service_rate_limit_domain_not_found")["domain=made up_007"]; found {
		t.Error("a domain that has rules now is still counted as not found")
	}
}

func TestEachPartHasALabel(t *testing.T) {
	m := newStats(Options{})
	var deep []string
	for i := range 11 {
		deep = append(deep, "k"+strconv.Itoa(i)+"=v")
	}
	m.Observe(hit(nil, "envoy/gw:http", "masked_remote_address=invert:192.0.2.0/24"))
	m.Observe(hit(nil, "d", "a=1", "b=2"))
	m.Observe(hit(nil, "d", deep...))
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP ratelimit_service_rate_limit_total_hits Number of hits requested, without peeks, refunds, releases and settlements.
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="d",key1="a_1",key2="b_2"} 1
ratelimit_service_rate_limit_total_hits{domain="d",key1="k0_v",key10="k9_v",key11="k10_v",key2="k1_v",key3="k2_v",key4="k3_v",key5="k4_v",key6="k5_v",key7="k6_v",key8="k7_v",key9="k8_v"} 1
ratelimit_service_rate_limit_total_hits{domain="envoy/gw_http",key1="masked_remote_address_invert_192_0_2_0/24"} 1
`), "ratelimit_service_rate_limit_total_hits"); err != nil {
		t.Error(err)
	}
}

// Different values may be equal once they are clean. They must share one series, or every scrape
// would fail.
func TestEqualCleanNamesShareASeries(t *testing.T) {
	m := newStats(Options{})
	for _, value := range []string{"a:b", "a|b", "a_b", "a\nb", "\xff", "\xfe"} {
		m.Observe(hit(nil, "d", "k="+value))
	}
	if got := total(m, "d", "k_a_b"); got != 4 {
		t.Errorf("%d, want 4", got)
	}
	if _, err := m.Registry.Gather(); err != nil {
		t.Error(err)
	}
}

func TestConcurrentDecisionsAreAllCounted(t *testing.T) {
	m := newStats(Options{})
	m.byDescriptor.max = 50
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	m.Loaded(rules, nil)
	const each = 2000
	var counting, other sync.WaitGroup
	done := make(chan struct{})
	other.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := m.Registry.Gather(); err != nil {
				t.Error(err)
				return
			}
			m.byDescriptor.swept.Store(0) // so that a full table is searched again
			m.Loaded(rules, nil)
		}
	})
	for w := range 4 {
		counting.Go(func() {
			for i := range each {
				m.Observe(hit(rules, "d", "a=1"))
				m.Observe(hit(rules, "d", fmt.Sprintf("user=%d", w*each+i)))
			}
		})
	}
	counting.Wait()
	close(done)
	other.Wait()
	if got := total(m, "d", "a"); got != 4*each {
		t.Errorf("%d, want %d", got, 4*each)
	}
	if got := m.byDescriptor.len(); got > 51 {
		t.Errorf("%d series", got)
	}
}

func BenchmarkObserve(b *testing.B) {
	const limit = `rate_limit: {unit: day, requests_per_unit: 1000000}`
	rules := loaded(b, "domain: d\ndescriptors: [{key: plain, descriptors: [{key: action, value: post, "+limit+"}]}]")
	for name, a := range map[string]*rls.Observation{
		"plain":    hit(rules, "d", "plain=alice", "action=post"),
		"override": hit(rules, "d", "user=alice", "action=post"),
	} {
		a.Duration, a.StoreDuration = time.Millisecond, time.Millisecond
		b.Run(name, func(b *testing.B) {
			m := newStats(Options{})
			m.Loaded(rules, nil)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.Observe(a)
				}
			})
		})
	}
}

// BenchmarkObserveByManyRules counts one request for each of n rules, in random order.
func BenchmarkObserveByManyRules(b *testing.B) {
	for _, n := range []int{10, 1_000, 9_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m, answers := newStats(Options{}), make([]rls.Observation, n)
			text := &strings.Builder{}
			text.WriteString("domain: d\ndescriptors:\n")
			var files []rulesfile.File
			for i := range n {
				fmt.Fprintf(text, "- {key: user, value: u%d, %s}\n", i, dayLimit)
				if i%10_000 == 9_999 || i == n-1 {
					files = append(files, rulesfile.File{Name: strconv.Itoa(i), Data: []byte(text.String())})
					text.Reset()
					text.WriteString("domain: d\ndescriptors:\n")
				}
			}
			rules, _, err := rulesfile.ParseWith(rulesfile.Options{MergeDomains: true}, files...)
			must.Succeed(b, err)
			m.Loaded(rules, nil)
			for i, at := range rand.Perm(n) {
				answers[at] = *hit(rules, "d", fmt.Sprintf("user=u%d", i))
				m.Observe(&answers[at])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Observe(&answers[i%n])
			}
		})
	}
}

// BenchmarkScrape collects a full table: 50,000 lines.
func BenchmarkScrape(b *testing.B) {
	m := newStats(Options{})
	for i := range 10_000 {
		m.Observe(hit(nil, "d", fmt.Sprintf("user=%d", i), "action=post"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
