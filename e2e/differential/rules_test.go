package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/internal/must"
)

// A rule is a descriptor in a rules file.
type rule struct {
	Key            string  `yaml:"key"`
	Value          string  `yaml:"value,omitempty"`
	RateLimit      *limit  `yaml:"rate_limit,omitempty"`
	ShadowMode     bool    `yaml:"shadow_mode,omitempty"`
	QuotaMode      bool    `yaml:"quota_mode,omitempty"`
	DetailedMetric bool    `yaml:"detailed_metric,omitempty"`
	ValueToMetric  bool    `yaml:"value_to_metric,omitempty"`
	ShareThreshold bool    `yaml:"share_threshold,omitempty"`
	Descriptors    []*rule `yaml:"descriptors,omitempty"`
}

type limit struct {
	Unit            string    `yaml:"unit,omitempty"`
	RequestsPerUnit uint32    `yaml:"requests_per_unit,omitempty"`
	Unlimited       bool      `yaml:"unlimited,omitempty"`
	Name            string    `yaml:"name,omitempty"`
	Replaces        []replace `yaml:"replaces,omitempty"`
}

type replace struct {
	Name string `yaml:"name"`
}

// A domain is the content of one file. A domain in two files is two values.
type domain struct {
	Domain      string  `yaml:"domain"`
	Descriptors []*rule `yaml:"descriptors"`
}

// The names of limits mark properties that an answer does not show: quota mode, shadow mode, and
// shared counters.
const (
	quotaName  = "quota"
	shadowName = "shadow"
	shareName  = "share"
)

type generator struct {
	*rand.Rand
	names int
	// calm avoids most exceptions: no shared counters, no limits of 0, no descriptor twice, no
	// shadow mode and no quota mode. It is for settings.stops, under which an exception for one
	// counter soon affects all.
	calm bool
}

func newGenerator(stream uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(*seed, stream))}
}

func one[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// percent returns true with a probability of p percent.
func (g *generator) percent(p int) bool { return g.IntN(100) < p }

// domains returns three domains, one without rules. If merged is set, the first is in two files.
// Their order is random in envoyproxy/ratelimit. Therefore the two share no key, and no key at
// their top level has a wildcard.
func (g *generator) domains(merged bool) []*domain {
	keys := []string{"k0", "k1", "k2", "k3"}
	ds := []*domain{
		{"d0", g.level(keys, 1, false, !merged)},
		{"d1", g.level(keys, 1, false, true)},
		{"d2", nil},
	}
	if merged {
		ds = append(ds, &domain{"d0", g.level([]string{"m0", "m1"}, 1, false, false)})
	}
	return ds
}

func (g *generator) level(keys []string, depth int, shared, wildKeys bool) []*rule {
	n := 1 + g.IntN(3)
	if depth == 1 {
		n = 6 + g.IntN(6)
	}
	var rules []*rule
	taken := map[string]bool{}
	for range n {
		r := g.entry(keys, wildKeys)
		if composite := r.Key + "_" + r.Value; taken[composite] {
			continue // an error on both sides
		} else {
			taken[composite] = true
		}
		// share_threshold requires a star in the key or value.
		wild := strings.Contains(r.Key+r.Value, "*")
		r.ShareThreshold = !g.calm && wild && g.percent(50)
		r.ValueToMetric = g.percent(20)
		below := shared || r.ShareThreshold
		if depth < 4 && g.percent(50) {
			r.Descriptors = g.level(keys, depth+1, below, true)
		}
		if len(r.Descriptors) == 0 && g.percent(90) || g.percent(75) {
			g.limit(r, below)
		}
		rules = append(rules, r)
	}
	return rules
}

// entry returns a rule with a key, and with a value, a pattern or neither. No key has a "_",
// because envoyproxy/ratelimit joins key and value with it: see the table differences.
func (g *generator) entry(keys []string, wildKeys bool) *rule {
	r := &rule{Key: one(g, keys...)}
	switch p := g.IntN(100); {
	case p < 45:
		r.Value = one(g, "a", "b", "ab", "abc", "b c", "x_y", "10.0.0.1", "ü", "true", "123", "{h}", "a:b|c")
	case p < 70:
		r.Value = one(g, "*", "a*", "ab*", "x_*", "1*", "{*")
	case p < 76 && wildKeys:
		r.Key = one(g, "k*", r.Key+"*", "*")
	}
	return r
}

func (g *generator) limit(r *rule, shared bool) {
	l := &limit{
		Unit:            one(g, "second", "minute", "hour", "day", "week", "month", "year", "Minute", "HOUR"),
		RequestsPerUnit: one[uint32](g, 0, 1, 1, 2, 2, 3, 3, 5, 5, 8, 8, 13, 20, 100, 4294967295),
	}
	if g.calm {
		l.RequestsPerUnit = max(1, l.RequestsPerUnit)
	}
	r.RateLimit = l
	r.ShadowMode = g.percent(15) && !g.calm
	r.QuotaMode = g.percent(20) && !g.calm
	r.DetailedMetric = g.percent(15)
	if g.percent(8) {
		*l = limit{Unlimited: true, Unit: one(g, "", "fortnight"), RequestsPerUnit: one[uint32](g, 0, 3)}
	}
	for name, is := range map[string]bool{quotaName: r.QuotaMode, shadowName: r.ShadowMode, shareName: shared} {
		if is {
			l.Name += name
		}
	}
	switch {
	case l.Name != "":
		g.names++
		l.Name += fmt.Sprint(g.names)
	case g.percent(50):
		l.Name = one(g, "n0", "n1", "n2", "n3")
	}
	for _, other := range []string{"n0", "n1", "n2", "nobody"} {
		if other != l.Name && g.percent(8) {
			l.Replaces = append(l.Replaces, replace{other})
		}
	}
}

// filesOf writes each domain to a file.
func filesOf(t testing.TB, ds []*domain) []file {
	t.Helper()
	var fs []file
	for i, d := range ds {
		b, err := yaml.Marshal(d)
		must.Succeed(t, err)
		fs = append(fs, file{fmt.Sprintf("rules%d.yaml", i), string(b)})
	}
	return fs
}
