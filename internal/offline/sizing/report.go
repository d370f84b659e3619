package sizing

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/guard"
)

// A Load is the expected traffic.
type Load struct {
	Users       int64         `json:"users"`       // distinct values that send while a key exists, of all keys without a value together
	Rate        float64       `json:"rate"`        // requests a second of all users at the peak, each under one rule; 0: unknown
	Replicas    int64         `json:"replicas"`    // replicas of Weir
	Probability float64       `json:"probability"` // the probability of a false limit, see [LocalLimit]
	Lag         time.Duration `json:"-"`           // how far a Redis replica is behind its master at a failover
	// Values sets the number of values of keys whose values are not users, such as 20 for the key
	// action.
	Values map[string]int64 `json:"-"`
}

func (l *Load) check() error {
	switch {
	case l.Users < 1 || l.Users > 1<<40:
		return fmt.Errorf("%d users are out of range: want a number from 1 to %d", l.Users, int64(1)<<40)
	case !(l.Rate >= 0 && l.Rate <= 1e9):
		return fmt.Errorf("a rate of %g is out of range: write the requests a second, from 0 to 1000000000", l.Rate)
	case l.Lag < 0 || l.Lag > time.Hour:
		return fmt.Errorf("a replication lag of %v is out of range: want a duration from 0s to 1h", l.Lag)
	}
	for key, n := range l.Values {
		if n < 1 || n > 1<<40 {
			return fmt.Errorf("%d values of the key %q are out of range: want a number from 1 to %d", n, key, int64(1)<<40)
		}
	}
	_, err := Local(1, l.Replicas, l.Probability)
	return err
}

// A Report holds the resources that a load needs under some rules, and the bounds of its
// over-admission.
type Report struct {
	Load
	Limits      []*LimitReport `json:"limits"`
	Keys        float64        `json:"keys"`         // keys under all limits, at most
	MemoryBytes Range          `json:"memory_bytes"` // for the keys, if the counters are in Weir's memory
	RedisBytes  Range          `json:"redis_bytes"`  // for the keys, if the counters are on Redis
	Calls       Calls          `json:"redis_calls"`
	// FailoverHits is the maximum number of admitted hits, over all keys, that a failover of Redis
	// loses; nil if Rate is unknown.
	FailoverHits *float64 `json:"failover_hits"`
	CPU          Cores    `json:"cores"`

	leases bool // a rule has leases
}

// Calls are the calls to Redis that a request under one rule makes. One call carries all waiting
// hits. A request that is denied or canceled after it has opened leases makes one more.
type Calls struct {
	PerRequest float64 `json:"per_request"`         // at most, to one Redis
	Cluster    float64 `json:"per_request_cluster"` // the same with one descriptor, because all limits of a rule are in one hash slot
	PerSecond  float64 `json:"per_second"`          // at most, to one Redis, at the rate of the load
}

// Cores are the CPU cores that the rate needs. Busy is for 64 requests at once. Single is for one
// request at a time, which costs more CPU for each.
type Cores struct {
	WeirInMemory CPU `json:"weir_in_memory"`
	WeirOnRedis  CPU `json:"weir_on_redis"`
	Redis        CPU `json:"redis"`
}

// A LimitReport is the part of a [Report] for one limit.
type LimitReport struct {
	Domain      string        `json:"domain"`
	Path        string        `json:"path"`
	Name        string        `json:"name,omitempty"`
	Shadow      bool          `json:"shadow,omitempty"` // the limit denies nothing
	Algorithm   string        `json:"algorithm"`
	Limit       int64         `json:"limit"` // hits in a window, or slots
	Capacity    int64         `json:"capacity"`
	Window      time.Duration `json:"window_ns"`
	Keys        float64       `json:"keys"` // that exist at the same time, at most
	MemoryBytes Range         `json:"memory_bytes"`
	RedisBytes  Range         `json:"redis_bytes"`
	Over        Over          `json:"over"`
}

// Over holds the largest over-admission of one key, by cause.
type Over struct {
	// AnyWindow is the most that a limit without failures admits in any interval as long as its
	// window; 0 without a window. Calendar windows differ in length: AnyWindow is for the shortest,
	// such as February.
	AnyWindow int64 `json:"any_window"`
	DenyCache int64 `json:"deny_cache"` // always 0, because the cache only denies
	// Memory applies if each replica counts in its own memory, without Redis: each further replica
	// admits as much in a window as the first.
	Memory int64 `json:"memory"`
	// OnStoreError is on_store_error. Under local, Share is the limit of each replica, without the
	// capacity of a funnel. Outage is then the most that all replicas together admit in a window,
	// beyond the hits that Redis has admitted. Outage is nil under an OnStoreError without a bound,
	// which is allow, and error with failure_mode_deny: false.
	OnStoreError string `json:"on_store_error"`
	Share        int64  `json:"local_share"`
	Outage       *int64 `json:"outage"`
	// Failover applies if Redis fails over, or restarts without persistence, and loses all charges
	// of a key.
	Failover int64 `json:"failover"`
}

// NewReport computes the report for the rules.
func NewReport(rules *descriptors.Rules, load Load) (*Report, error) {
	if err := load.check(); err != nil {
		return nil, err
	}
	r := &Report{Load: load, Limits: []*LimitReport{}}
	if load.Rate > 0 {
		lost := load.Rate * load.Lag.Seconds()
		r.FailoverHits = &lost
	}
	unused := maps.Clone(load.Values)
	for rule := range rules.All() {
		r.leases = r.leases || rule.UsesLeases()
		keys := keysOf(rule, &load, unused)
		for i := range rule.Limits {
			limit, err := newLimitReport(rules, rule, i, keys, &load)
			if err != nil {
				return nil, err
			}
			r.Limits = append(r.Limits, limit)
			r.Keys += limit.Keys
			r.MemoryBytes, r.RedisBytes = r.MemoryBytes.plus(limit.MemoryBytes), r.RedisBytes.plus(limit.RedisBytes)
		}
	}
	if len(r.Limits) == 0 {
		return nil, errors.New("the rules have no limit: add a rate_limit to a descriptor")
	}
	for _, key := range slices.Sorted(maps.Keys(unused)) {
		return nil, fmt.Errorf("no rule has the key %q without a value: correct its name, or leave it out", key)
	}
	r.Calls = Calls{PerRequest: 1, Cluster: 1, PerSecond: load.Rate}
	r.setCores()
	return r, nil
}

// keysOf returns the number of keys under a rule if all users send while one of them exists.
func keysOf(rule *descriptors.Rule, load *Load, unused map[string]int64) float64 {
	nodes := rule.Path()
	if rule.UsesLeases() {
		nodes = nodes[:len(nodes)-1] // the last entry, the id of a request, belongs to no key
	}
	keys, byUser := 1.0, false
	for i := range nodes {
		l := &nodes[i]
		switch n, given := load.Values[l.Key]; {
		case len(l.Values) > 0:
			if !l.ShareThreshold {
				keys *= float64(len(l.Values))
			}
		case len(l.Prefixes) > 0 && l.ShareThreshold:
			keys *= float64(len(l.Prefixes))
		case l.ShareThreshold, l.Value != "" && !l.IsShareable():
		case given:
			keys *= float64(n)
			delete(unused, l.Key)
		default:
			byUser = true
		}
	}
	if byUser {
		keys *= float64(load.Users)
	}
	return keys
}

func newLimitReport(rules *descriptors.Rules, rule *descriptors.Rule, i int, keys float64, load *Load) (*LimitReport, error) {
	l := &rule.Limits[i]
	spec := l.Spec()
	r := &LimitReport{
		Domain: rule.Domain, Path: rule.Name, Name: l.Name, Shadow: rule.ShadowMode,
		Algorithm: spec.Algorithm, Limit: spec.Max, Capacity: l.Capacity(), Window: spec.Window,
	}
	ttl := lifetime(l.Limit)
	// atMost returns n, or the number of requests that arrive within a time if that is less.
	atMost := func(n float64, within time.Duration) float64 {
		if load.Rate == 0 {
			return n
		}
		return min(n, math.Ceil(load.Rate*within.Seconds()))
	}
	r.Keys = atMost(keys, ttl)
	// A hit or lease that no longer counts stays until the next request of its key, or as long as
	// the key.
	hits := atMost(r.Keys*maxUsage(l.Limit), max(longestWindow(&spec), l.LeaseTTL())+ttl)
	memory := func(sizes map[string]Size, reservationsKept time.Duration) Range {
		all := sizes[l.Algorithm()].of(r.Keys, max(r.Keys, hits))
		if l.HasPenalty() {
			all = all.plus(sizes["penalty"].of(r.Keys, r.Keys))
		}
		if l.Reserves() {
			all = all.plus(sizes["reservation"].of(r.Keys, atMost(r.Keys*limiters.MaxLeases, l.LeaseTTL()+reservationsKept)))
		}
		return all
	}
	r.MemoryBytes = memory(Figures().Memory, ttl)
	r.RedisBytes = memory(Figures().Redis, onRedis(max(l.LeaseTTL(), l.RefundableFor()))) // a key of their own
	var err error
	r.Over, err = overAdmission(rules, rule, l, load)
	return r, err
}

// overAdmission returns the bounds of the over-admission under a limit.
func overAdmission(rules *descriptors.Rules, rule *descriptors.Rule, l *descriptors.RateLimit, load *Load) (Over, error) {
	share, err := guard.ShareLimit(l.Limit, load.Replicas, load.Probability)
	if err != nil {
		return Over{}, fmt.Errorf("%s: the share of a replica: %w", rule.Name, err)
	}
	onStoreError := rules.Domain(rule.Domain).OnStoreError(l)
	o := Over{
		AnyWindow: l.MaxAdmitted(), Memory: product(load.Replicas-1, perWindow(l.Limit)),
		OnStoreError: onStoreError.String(), Share: share.Spec().Max, Failover: l.Capacity(),
	}
	switch onStoreError {
	case limiters.OnStoreErrorDeny:
		o.Outage = new(int64)
	case limiters.OnStoreErrorLocal:
		o.Outage = new(product(load.Replicas, perWindow(share)))
	}
	return o, nil
}

// lifetime returns the longest time that a key exists after a hit, in any store.
func lifetime(l *limiters.Limit) time.Duration {
	spec := l.Spec()
	reset := longestWindow(&spec)
	if l.Drains() {
		reset = time.Duration(float64(reset) * max(1, maxUsage(l)/float64(max(1, spec.Max))))
	}
	if l.UsesLeases() {
		reset = max(reset, l.LeaseTTL(), l.RefundableFor(), limiters.EndedTTL)
	}
	if l.HasPenalty() {
		p := l.Penalty()
		reset = max(reset, p.Within, p.Max+p.Forget)
	}
	return onRedis(reset)
}

// onRedis returns the longest time for which Redis keeps a key that has fully reset in reset. See
// renew_expiry in prelude.lua.
func onRedis(reset time.Duration) time.Duration { return reset + reset/4 + 2250*time.Millisecond }

// maxUsage returns the maximum usage of a key. Denied hits that count, and settlements, fill it up
// to twice its capacity.
func maxUsage(l *limiters.Limit) float64 {
	if l.Spec().CountDenied || l.Reserves() {
		return 2 * float64(l.Capacity())
	}
	return float64(l.Capacity())
}

// longestWindow returns the longest calendar window, or the window of any other limit.
func longestWindow(spec *limiters.Spec) time.Duration {
	d := spec.Window
	if spec.Params.WindowStart != limiters.StartByCalendar {
		return d
	}
	switch spec.Params.CalendarUnit {
	case "month":
		d = d / 30 * 31
	case "year":
		d = d / 365 * 366
	}
	if spec.Params.TimeZone != "" {
		d += 3 * time.Hour // the most that a zone has turned its clocks back since 1990
	}
	return d
}

// perWindow returns the most that a key may be admitted in one window, from an empty state.
func perWindow(l *limiters.Limit) int64 {
	if l.Drains() {
		return l.MaxAdmitted()
	}
	return l.Spec().Max
}

// product returns a * b, or the largest int64 if that is more.
func product(a, b int64) int64 {
	if high, low := bits.Mul64(uint64(a), uint64(b)); high == 0 && low <= math.MaxInt64 {
		return int64(low)
	}
	return math.MaxInt64
}

// setCores sets the cores for the rate, from the measured algorithms among those of the rules.
func (r *Report) setCores() {
	var algorithms []string
	for _, l := range r.Limits {
		if !slices.Contains(algorithms, l.Algorithm) {
			algorithms = append(algorithms, l.Algorithm)
		}
	}
	cores := func(measured map[string]CPU) (c CPU) {
		for _, name := range algorithms {
			if m, found := measured[name]; found {
				c.Busy, c.Single = c.Busy.widest(m.Busy), c.Single.widest(m.Single)
			}
		}
		return CPU{c.Busy.times(r.Rate / 1e6), c.Single.times(r.Rate / 1e6)}
	}
	m := Figures()
	r.CPU = Cores{cores(m.InMemory), cores(m.Weir), cores(m.Store)}
}

// ParseValues parses texts such as action=20.
func ParseValues(texts []string) (map[string]int64, error) {
	values := make(map[string]int64)
	for _, text := range texts {
		key, number, found := strings.Cut(text, "=")
		n, err := strconv.ParseInt(number, 10, 64)
		if _, twice := values[key]; !found || err != nil || key == "" || twice {
			return nil, fmt.Errorf("%q: write KEY=NUMBER, such as action=20, and each key once", text)
		}
		values[key] = n
	}
	return values, nil
}
