package differential

import (
	"fmt"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type (
	request    = ratelimitv3.RateLimitRequest
	descriptor = commonv3.RateLimitDescriptor
	entry      = commonv3.RateLimitDescriptor_Entry
)

// ask returns a request for descriptors.
func ask(domain string, ds ...*descriptor) *request { return &request{Domain: domain, Descriptors: ds} }

// desc returns a descriptor with the entries key, value, key, value...
func desc(entries ...string) *descriptor {
	d := &descriptor{}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

func withHits(d *descriptor, n uint64) *descriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func withLimit(d *descriptor, requests uint32, unit typev3.RateLimitUnit) *descriptor {
	d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

// requestsFor generates random requests for the rules of ds. Values that no rule names change over
// time, so that some counters stay below their limits.
type requestsFor struct {
	*generator
	ds   []*domain
	made int
}

func (g *requestsFor) next() *request {
	g.made++
	d := one(g.generator, g.ds...)
	r := &request{Domain: d.Domain}
	if g.percent(4) {
		r.Domain = one(g.generator, "nowhere", "D0", "d")
	}
	if g.percent(25) {
		r.HitsAddend = one[uint32](g.generator, 1, 2, 3, 7)
	}
	if g.percent(1) {
		r.HitsAddend = 4294967295
	}
	n := one(g.generator, 1, 1, 1, 2, 2, 3, 4, 8)
	seen := map[string]bool{}
	for range n {
		desc := g.descriptor(d)
		if text := entriesText(desc); g.calm && seen[text] {
			continue
		} else {
			seen[text] = true
		}
		r.Descriptors = append(r.Descriptors, desc)
	}
	if g.percent(1) {
		r.Descriptors = nil
	}
	if g.percent(1) {
		r.Domain = ""
	}
	return r
}

func (g *requestsFor) descriptor(d *domain) *descriptor {
	out := &descriptor{}
	if g.percent(2) {
		return out // Envoy sends an empty descriptor if it skips all actions
	}
	rules := d.Descriptors
	for len(rules) > 0 && (len(out.Entries) == 0 || g.percent(85)) {
		r := one(g.generator, rules...)
		key := g.fill(r.Key)
		if key == "" { // see the table differences
			key = "k9"
		}
		out.Entries = append(out.Entries, &entry{Key: key, Value: g.value(r)})
		rules = r.Descriptors
	}
	if len(out.Entries) == 0 || g.percent(8) { // deeper than the rules, or outside of them
		out.Entries = append(out.Entries, &entry{Key: one(g.generator, "k0", "k1", "other"), Value: g.any()})
	}
	if g.percent(8) {
		e := one(g.generator, out.Entries...)
		if g.percent(50) {
			e.Value = g.any()
		} else {
			e.Key = one(g.generator, "k0", "k2", "K0", "k")
		}
	}
	if g.percent(25) {
		withHits(out, one[uint64](g.generator, 0, 0, 0, 1, 2, 5))
	}
	if g.percent(1) {
		withHits(out, one[uint64](g.generator, 1000, 1<<40))
	}
	if g.percent(10) {
		withLimit(out, one[uint32](g.generator, 0, 1, 2, 3, 5, 5, 8, 20, 100, 4294967295), one(g.generator,
			typev3.RateLimitUnit_SECOND, typev3.RateLimitUnit_MINUTE, typev3.RateLimitUnit_HOUR,
			typev3.RateLimitUnit_DAY, typev3.RateLimitUnit_MONTH, typev3.RateLimitUnit_YEAR))
		if g.calm {
			out.Limit.RequestsPerUnit = max(1, out.Limit.RequestsPerUnit)
		}
		if g.percent(85) { // a counter of few other requests: shared ones are exceptions
			out.Entries[len(out.Entries)-1].Value = fmt.Sprint("o", g.made/10)
		}
	}
	return out
}

// value returns a value that the rule matches.
func (g *requestsFor) value(r *rule) string {
	if r.Value == "" {
		return g.any()
	}
	return g.fill(r.Value)
}

// fill replaces each star by a text. Rarely it returns the pattern itself, which is a valid text,
// too.
func (g *requestsFor) fill(pattern string) string {
	if g.percent(3) {
		return pattern
	}
	return strings.ReplaceAll(pattern, "*", one(g.generator, "", "1", "9", "b"))
}

func (g *requestsFor) any() string {
	return one(g.generator, "", "a", "abz", "x_", "zz", fmt.Sprint("v", g.made/300), fmt.Sprint("v", g.made/100))
}

func entriesText(d *descriptor) string {
	var b strings.Builder
	for _, e := range d.GetEntries() {
		b.WriteString(e.GetKey() + "_" + e.GetValue() + "_")
	}
	return b.String()
}
