package telemetry

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/rls"
)

type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newFakeClock() *fakeClock { return &fakeClock{now: time.Unix(1_700_000_000, 0)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func entriesOf(texts ...string) []descriptors.Entry {
	var entries []descriptors.Entry
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		entries = append(entries, descriptors.Entry{Key: key, Value: value})
	}
	return entries
}

// hit is an answer to one descriptor, an allowed hit under the rule that matches it, or a limit of its own.
func hit(rules *descriptors.Rules, domain string, texts ...string) *rls.Answer {
	d := rls.Decision{Domain: domain, Entries: entriesOf(texts...), Hits: 1, Limit: tenADay,
		Verdict: limiters.Verdict{Allowed: true, Used: 1}}
	d.Rule = rules.Match(domain, d.Entries)
	d.Override = d.Rule == nil
	return &rls.Answer{Decisions: []rls.Decision{d}}
}

// total are the total_hits of the series of a name, -1 if there is none.
func total(m *Metrics, labels ...string) int {
	for _, s := range m.incumbent.rates.all() {
		if slices.Equal(s.labels, labels) {
			return int(s.counts[totalHits].Load())
		}
	}
	return -1
}

func TestPastTheBoundNewNamesAreOther(t *testing.T) {
	time_ := newFakeClock()
	m := NewMetrics("test", MaxSeries(3), clock(time_.Now))
	for i := range 100 {
		m.Answered(hit(nil, "d", fmt.Sprintf("user=%d", i)))
	}
	m.Answered(hit(nil, "e", "user=0"))
	m.Answered(hit(nil, "d", "user=1"))
	if a, b, c := total(m, "d", "user_1"), total(m, "d", "other"), total(m, "e", "other"); a != 2 || b != 97 || c != 1 {
		t.Errorf("user_1 %d, other %d, other of e %d, want 2, 97 and 1", a, b, c)
	}
	if n := m.incumbent.rates.len(); n != 5 {
		t.Errorf("%d series, want 3 and an other one for each domain", n)
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP weir_metrics_overflow_total Times that something was counted as key1="other", or domain="other", since there were too many series.
# TYPE weir_metrics_overflow_total counter
weir_metrics_overflow_total 98
`), "weir_metrics_overflow_total"); err != nil {
		t.Error(err)
	}
}

func TestWhatIsIdleMakesRoom(t *testing.T) {
	time_ := newFakeClock()
	m := NewMetrics("test", MaxSeries(2), SeriesIdle(time.Hour), clock(time_.Now))
	m.Answered(hit(nil, "d", "old=1"))
	m.Answered(hit(nil, "d", "busy=1"))
	m.Answered(hit(nil, "d", "late=1"))
	for range 4 {
		time_.advance(20 * time.Minute)
		m.Answered(hit(nil, "d", "busy=1"))
		m.incumbent.rates.sweep()
	}
	if a, b, c := total(m, "d", "old_1"), total(m, "d", "busy_1"), total(m, "d", "other"); a != -1 || b != 5 || c != -1 {
		t.Errorf("old %d, busy %d, other %d, want busy alone", a, b, c)
	}
	m.Answered(hit(nil, "d", "late=1"))
	if got := total(m, "d", "late_1"); got != 1 {
		t.Errorf("late %d, want 1", got)
	}
	// A full table is searched by itself, at most once in a while.
	time_.advance(2 * time.Hour)
	m.Answered(hit(nil, "d", "busy=1"))
	m.Answered(hit(nil, "d", "new=1"))
	if got := total(m, "d", "new_1"); got != -1 {
		t.Errorf("new %d before anything is known to be idle", got)
	}
	time_.advance(time.Hour)
	m.Answered(hit(nil, "d", "new=1"))
	if got := total(m, "d", "new_1"); got != 1 {
		t.Errorf("new %d, want 1", got)
	}
}

const dayLimit = `rate_limit: {unit: day, requests_per_unit: 1000000}`

// A rule for whose series there is no room counts with others, each time as if it were the first.
func TestARuleGetsItsSeriesWhenThereIsRoom(t *testing.T) {
	time_ := newFakeClock()
	m := NewMetrics("test", MaxSeries(1), SeriesIdle(time.Hour), clock(time_.Now))
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, "+dayLimit+"}, {key: b, "+dayLimit+"}]")
	m.Loaded(rules, time_.Now(), nil)
	for range 3 {
		m.Answered(hit(rules, "d", "a=1"))
		m.Answered(hit(rules, "d", "b=1"))
	}
	if a, b, other, over := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "other"), m.incumbent.rates.overflows.Load(); a != 3 ||
		b != -1 || other != 3 || over != 3 {
		t.Errorf("a %d, b %d, other %d, %d overflows, want 3, none, 3 and 3", a, b, other, over)
	}
	m.incumbent.rates.sweep() // sees what a has come to
	for range 3 {
		time_.advance(20 * time.Minute)
		m.Answered(hit(rules, "d", "b=1"))
	}
	if a, b, other := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "other"); a != -1 || b != 1 || other != 5 {
		t.Errorf("a %d, b %d, other %d, want none, 1 and 5", a, b, other)
	}
	m.Answered(hit(rules, "d", "b=1"))
	if b := total(m, "d", "b"); b != 2 {
		t.Errorf("b %d, want 2", b)
	}
}

// What one Metrics noted of a rule is not another's.
func TestTwoMetricsCountTheSameRules(t *testing.T) {
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, "+dayLimit+"}]")
	one, two := NewMetrics("test"), NewMetrics("test")
	for range 3 {
		one.Answered(hit(rules, "d", "a=1"))
		two.Answered(hit(rules, "d", "a=1"))
	}
	for _, m := range []*Metrics{one, two} {
		if n := measured(t, m, "weir_hits_total")["domain=d"].count; total(m, "d", "a") != 3 || n != 3 {
			t.Errorf("%d, and %v hits, want 3", total(m, "d", "a"), n)
		}
	}
}

// A series that went while a rule remembers it must not be counted on.
func TestARuleThatWasIdleIsCountedAgain(t *testing.T) {
	time_ := newFakeClock()
	m := NewMetrics("test", SeriesIdle(time.Hour), clock(time_.Now))
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	m.Loaded(rules, time_.Now(), nil)
	for range 3 {
		m.Answered(hit(rules, "d", "a=1"))
	}
	m.incumbent.rates.sweep()
	time_.advance(time.Hour)
	m.incumbent.rates.sweep()
	if got := m.incumbent.rates.len(); got != 0 {
		t.Fatalf("%d series", got)
	}
	for range 2 {
		m.Answered(hit(rules, "d", "a=1"))
	}
	if got := total(m, "d", "a"); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestReloadsKeepTheSeriesOfRulesThatStay(t *testing.T) {
	m := NewMetrics("test")
	const limit = `, rate_limit: {unit: day, requests_per_unit: 1}}`
	load := func(text string) *descriptors.Rules {
		rules := loaded(t, text)
		m.Loaded(rules, time.Now(), nil)
		return rules
	}
	both := "domain: d\ndescriptors: [{key: a" + limit + ", {key: b" + limit + "]"
	rules := load(both)
	for range 2 {
		m.Answered(hit(rules, "d", "a=1"))
		m.Answered(hit(rules, "d", "b=1"))
		m.Answered(hit(rules, "d", "own=1"))
	}
	rules = load(both)
	m.Answered(hit(rules, "d", "a=1"))
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	if a, b, o := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "own_1"); a != 3 || b != 2 || o != 2 {
		t.Errorf("after the same rules: a %d, b %d, own %d, want 3, 2 and 2", a, b, o)
	}
	load("domain: d\ndescriptors: [{key: b" + limit + "]")
	if a, b, o := total(m, "d", "a"), total(m, "d", "b"), total(m, "d", "own_1"); a >= 0 || b != 2 || o != 2 {
		t.Errorf("without a: a %d, b %d, own %d, want none, 2 and 2", a, b, o)
	}
	load("domain: other")
	if got := m.incumbent.rates.len(); got != 0 {
		t.Errorf("without the domain: %d series", got)
	}
}

// Two rules may have one name in metrics, since the incumbent joins with an underscore. It stays while one of them
// does.
func TestASeriesOfTwoRulesStaysWithEither(t *testing.T) {
	m := NewMetrics("test")
	const limit = `, rate_limit: {unit: day, requests_per_unit: 1}}`
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, value: b"+limit+", {key: a_b"+limit+"]")
	m.Loaded(rules, time.Now(), nil)
	m.Answered(hit(rules, "d", "a_b="))
	m.Answered(hit(rules, "d", "a=b"))
	if got := total(m, "d", "a_b"); got != 2 {
		t.Fatalf("%d, want 2", got)
	}
	m.Loaded(loaded(t, "domain: d\ndescriptors: [{key: a, value: b"+limit+"]"), time.Now(), nil)
	if got := total(m, "d", "a_b"); got != 2 {
		t.Errorf("%d, want 2", got)
	}
}

func TestErrorsAreTheStoresOrElse(t *testing.T) {
	m := NewMetrics("test")
	asked := hit(nil, "d", "a=1").Decisions
	asked[0].Verdict = limiters.Verdict{Err: errors.New("broken")}
	for _, code := range []codes.Code{
		codes.OK, codes.Canceled, codes.Unavailable, codes.DeadlineExceeded, codes.Unavailable,
	} {
		m.Answered(&rls.Answer{Code: code, Decisions: asked})
	}
	for _, code := range []codes.Code{
		codes.OK, codes.Canceled, codes.InvalidArgument, codes.Unavailable, codes.Internal, codes.InvalidArgument,
	} {
		m.Answered(&rls.Answer{Code: code})
	}
	m.Loaded(nil, time.Now(), errors.New("a bad file"))
	m.Loaded(nil, time.Now(), nil)
	m.Loaded(nil, time.Now(), nil)
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP ratelimit_service_config_load_error Times that rules had faults; the old ones stay.
# TYPE ratelimit_service_config_load_error counter
ratelimit_service_config_load_error 1
# HELP ratelimit_service_config_load_success Times that rules were loaded.
# TYPE ratelimit_service_config_load_success counter
ratelimit_service_config_load_success 2
# HELP ratelimit_service_should_rate_limit_error Requests that failed, by what failed: the store, or another.
# TYPE ratelimit_service_should_rate_limit_error counter
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 3
ratelimit_service_should_rate_limit_error{err_type="service_error"} 4
`), "ratelimit_service_should_rate_limit_error", "ratelimit_service_config_load_error",
		"ratelimit_service_config_load_success"); err != nil {
		t.Error(err)
	}
}

func TestDomainsThatNobodyHasAreBounded(t *testing.T) {
	m := NewMetrics("test", NearLimitRatio(.5))
	for i := range 3 * maxDomains {
		m.Answered(&rls.Answer{DomainNotFound: true, Domain: fmt.Sprintf("made up:%03d", i), GlobalShadow: i == 0})
	}
	all := measured(t, m, "ratelimit_service_rate_limit_domain_not_found")
	if n := all["domain=made up_007"].count; n != 1 {
		t.Errorf("one domain: %v", n)
	}
	if n := all["domain=other"].count; n != 2*maxDomains || len(all) != maxDomains+1 {
		t.Errorf("other domains: %v, of %d series", n, len(all))
	}
	if got := m.incumbent.shadowed.n.Load(); got != 1 {
		t.Errorf("global shadow mode: %d", got)
	}
	m.Loaded(loaded(t, "domain: made up:007"), time.Now(), nil)
	if _, found := measured(t, m, "ratelimit_service_rate_limit_domain_not_found")["domain=made up_007"]; found {
		t.Error("a domain that rules have now is told as not found")
	}
}

func TestEveryLevelHasALabel(t *testing.T) {
	m := NewMetrics("test")
	var deep []string
	for i := range 11 {
		deep = append(deep, "k"+strconv.Itoa(i)+"=v")
	}
	m.Answered(hit(nil, "envoy/gw:http", "masked_remote_address=invert:192.0.2.0/24"))
	m.Answered(hit(nil, "d", "a=1", "b=2"))
	m.Answered(hit(nil, "d", deep...))
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP ratelimit_service_rate_limit_total_hits Hits asked for. Looks and refunds are no hits.
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="d",key1="a_1",key2="b_2"} 1
ratelimit_service_rate_limit_total_hits{domain="d",key1="k0_v",key10="k9_v",key11="k10_v",key2="k1_v",key3="k2_v",key4="k3_v",key5="k4_v",key6="k5_v",key7="k6_v",key8="k7_v",key9="k8_v"} 1
ratelimit_service_rate_limit_total_hits{domain="envoy/gw_http",key1="masked_remote_address_invert_192_0_2_0/24"} 1
`), "ratelimit_service_rate_limit_total_hits"); err != nil {
		t.Error(err)
	}
}

// Texts that are told apart in a request may be one when they are clean: one series, or no scrape would succeed.
func TestNamesThatAreOneWhenCleanAreOneSeries(t *testing.T) {
	m := NewMetrics("test")
	for _, value := range []string{"a:b", "a|b", "a_b", "a\nb", "\xff", "\xfe"} {
		m.Answered(hit(nil, "d", "k="+value))
	}
	if got := total(m, "d", "k_a_b"); got != 4 {
		t.Errorf("%d, want 4", got)
	}
	if _, err := m.Registry.Gather(); err != nil {
		t.Error(err)
	}
}

func TestCountingWhileSeriesComeAndGo(t *testing.T) {
	time_ := newFakeClock()
	m := NewMetrics("test", MaxSeries(50), SeriesIdle(time.Hour), clock(time_.Now))
	rules := loaded(t, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]")
	m.Loaded(rules, time_.Now(), nil)
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
			time_.advance(time.Second)
			m.Loaded(rules, time_.Now(), nil)
		}
	})
	for w := range 4 {
		counting.Go(func() {
			for i := range each {
				m.Answered(hit(rules, "d", "a=1"))
				m.Answered(hit(rules, "d", fmt.Sprintf("user=%d", w*each+i)))
			}
		})
	}
	counting.Wait()
	close(done)
	other.Wait()
	if got := total(m, "d", "a"); got != 4*each {
		t.Errorf("%d, want %d", got, 4*each)
	}
	if got := m.incumbent.rates.len(); got > 51 {
		t.Errorf("%d series", got)
	}
}

func BenchmarkAnswered(b *testing.B) {
	const limit = `rate_limit: {unit: day, requests_per_unit: 1000000}`
	rules, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: []byte(
		"domain: d\ndescriptors: [{key: plain, descriptors: [{key: action, value: post, " + limit + "}]}]")})
	if err != nil {
		b.Fatal(err)
	}
	for name, a := range map[string]*rls.Answer{
		"plain":    hit(rules, "d", "plain=alice", "action=post"),
		"override": hit(rules, "d", "user=alice", "action=post"),
	} {
		a.Took, a.StoreTook = time.Millisecond, time.Millisecond
		b.Run(name, func(b *testing.B) {
			m := NewMetrics("test")
			m.Loaded(rules, time.Now(), nil)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m.Answered(a)
				}
			})
		})
	}
}

// BenchmarkAnsweredByManyRules is of a request of each of so many rules, in no order.
func BenchmarkAnsweredByManyRules(b *testing.B) {
	for _, n := range []int{10, 1_000, 9_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m, answers := NewMetrics("test"), make([]rls.Answer, n)
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
			if err != nil {
				b.Fatal(err)
			}
			m.Loaded(rules, time.Now(), nil)
			for i, at := range rand.Perm(n) {
				answers[at] = *hit(rules, "d", fmt.Sprintf("user=u%d", i))
				m.Answered(&answers[at])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Answered(&answers[i%n])
			}
		})
	}
}

// BenchmarkScrape is a scrape of a full table: 50,000 lines.
func BenchmarkScrape(b *testing.B) {
	m := NewMetrics("test")
	for i := range 10_000 {
		m.Answered(hit(nil, "d", fmt.Sprintf("user=%d", i), "action=post"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
