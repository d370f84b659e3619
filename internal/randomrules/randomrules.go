// Package randomrules generates random rules and requests for differential tests.
package randomrules

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// Rules are random rules of the domain "d", and the material for matching requests.
type Rules struct {
	Text    string // a rules file
	Overlay string // an overlay for it

	random *rand.Rand
	root   *node
}

// A node is a descriptor.
type node struct {
	key, value string
	values     []string // list values or prefixes
	isPrefix   bool
	lease      bool
	below      []*node
}

var (
	keys          = []string{"user_id", "action", "path", "ip"}
	texts         = []string{"1", "2", "12", "21", "login", "log-in", "10.1.2.3"}
	patterns      = []string{"1*", "*", "log*", "*in", "1*2"}
	prefixes      = []string{"0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "2001:db8::/32"}
	requestValues = slices.Concat(texts, []string{
		"", "3", "1x2", "Login", "10.1.2.4", "10.9.9.9", "192.168.0.1", "::ffff:10.1.2.3", "2001:db8::1", "fe80::1", "10.1.2.256",
	})
)

// New returns random rules. Equal sources of randomness give equal rules.
func New(random *rand.Rand) *Rules {
	r := &Rules{random: random, root: &node{}}
	var text strings.Builder
	text.WriteString("domain: d\n")
	r.grow(&text, r.root, 1)
	r.Text = text.String()
	r.Overlay = fmt.Sprintf("domain: d\ndescriptors:\n- {key: %s, rate_limit: {count_denied: false}}\n- {key: path, value: '*', rate_limit: {count_denied: true}}\n",
		r.pick(keys...))
	return r
}

func (r *Rules) pick(choices ...string) string { return choices[r.random.IntN(len(choices))] }

func (r *Rules) oneIn(n int) bool { return r.random.IntN(n) == 0 }

const maxDepth = 4

func (r *Rules) grow(text *strings.Builder, parent *node, depth int) {
	taken, pad := map[string]bool{}, strings.Repeat("  ", depth-1)
	for range r.random.IntN(7) {
		n := r.node()
		if slices.ContainsFunc(n.claims(), func(claim string) bool { return taken[claim] }) {
			continue
		}
		for _, claim := range n.claims() {
			taken[claim] = true
		}
		if len(parent.below) == 0 {
			text.WriteString(pad + "descriptors:\n")
		}
		parent.below = append(parent.below, n)
		n.lease = n.key == "lease"
		if n.lease && depth == 1 {
			n.key, n.lease = "tenant", false
		}
		text.WriteString(pad + "- key: '" + n.key + "'\n")
		if matching := n.matching(); matching != "" {
			text.WriteString(pad + "  " + matching + "\n")
		}
		if share := n.value != "" && strings.Contains(n.value, "*") || n.values != nil; share && r.oneIn(3) {
			text.WriteString(pad + "  share_threshold: true\n")
		}
		r.limit(text, n, pad)
		if depth < maxDepth && !n.lease {
			r.grow(text, n, depth+1)
		}
	}
}

func (r *Rules) node() *node {
	n := &node{key: r.pick(keys...)}
	switch r.random.IntN(8) {
	case 0, 1:
		n.value = r.pick(texts...)
	case 2:
		n.values = r.pickSome(texts)
	case 3:
		n.values, n.isPrefix = r.pickSome(prefixes), true
	case 4:
		n.value = r.pick(patterns...)
	case 5:
		if r.oneIn(3) {
			n.key = "a*"
		}
	case 6:
		n.key = "lease"
	}
	return n
}

func (r *Rules) pickSome(choices []string) []string {
	list := slices.Clone(choices)
	r.random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+r.random.IntN(3)]
}

// claims returns the texts that must be unique among siblings.
func (n *node) claims() []string {
	if len(n.values) == 0 {
		return []string{n.key + "=" + n.value}
	}
	claims := make([]string, len(n.values))
	for i, value := range n.values {
		claims[i] = n.key + "=" + value
	}
	return claims
}

func (n *node) matching() string {
	switch {
	case n.isPrefix:
		return "cidr: ['" + strings.Join(n.values, "', '") + "']"
	case n.values != nil:
		return "values: ['" + strings.Join(n.values, "', '") + "']"
	case n.value != "":
		return "value: '" + n.value + "'"
	}
	return ""
}

// limit writes the limit of a descriptor, or none.
func (r *Rules) limit(text *strings.Builder, n *node, pad string) {
	write := func(format string, args ...any) { fmt.Fprintf(text, pad+"  "+format+"\n", args...) }
	rate := fmt.Sprintf("unit: %s, requests_per_unit: %d", r.pick("second", "minute", "day", "month"), r.random.IntN(5))
	if n.lease {
		switch r.random.IntN(3) {
		case 0:
			write("rate_limit: {algorithm: concurrency, concurrent_requests: %d, lease_ttl: 60s}", 1+r.random.IntN(3))
		case 1:
			write("rate_limit: {%s, reserve: {ttl: 120s}}", rate)
		default:
			write("rate_limits: [{algorithm: concurrency, concurrent_requests: 2, lease_ttl: 60s}, {%s}]", rate)
		}
		return
	}
	const names = 4
	name := r.random.IntN(names)
	switch r.random.IntN(9) {
	case 0, 1:
		write("rate_limit: {%s}", rate)
	case 2:
		write("rate_limit: {%s, algorithm: %s, name: n%d}", rate, r.pick("sliding_log", "funnel"), name)
	case 3:
		write("rate_limits: [{%s}, {unit: year, requests_per_unit: 9, name: n%d}]", rate, name)
	case 4:
		write("rate_limit: {unlimited: true, name: n%d}", name)
	case 5:
		write("rate_limit: {%s, name: n%d, replaces: [{name: n%d}, {name: n%d}]}", rate, name, (name+1)%names, (name+2)%names)
	case 6:
		write("rate_limit: {%s, penalty: {after: 2, within: 1m, for: 10m}}", rate)
		write("%s", r.pick("shadow_mode: true", "quota_mode: true", "detailed_metric: true"))
	}
}

// Entries returns a random request. Most requests match the rules, and some differ from a match in
// one entry.
func (r *Rules) Entries() []descriptors.Entry {
	var entries []descriptors.Entry
	at, depth := r.root, 1+r.random.IntN(maxDepth)
	for len(entries) < depth {
		if len(at.below) == 0 || r.oneIn(10) {
			entries = append(entries, descriptors.Entry{Key: r.pick(append(keys, "userid", "lease")...), Value: r.pick(requestValues...)})
			if len(at.below) == 0 {
				break
			}
			continue
		}
		n := at.below[r.random.IntN(len(at.below))]
		entries = append(entries, descriptors.Entry{Key: strings.ReplaceAll(n.key, "a*", "action"), Value: r.valueFor(n)})
		at = n
	}
	if at.lease {
		if r.oneIn(8) {
			entries[len(entries)-1].Value = ""
		}
		if r.oneIn(3) {
			entries = append(entries, descriptors.Entry{Key: r.pick("release", "settle", "user_id"), Value: "1"})
		}
	}
	return entries
}

func (r *Rules) valueFor(n *node) string {
	switch {
	case r.oneIn(4):
		return r.pick(requestValues...)
	case n.isPrefix:
		return r.pick("10.1.2.3", "10.1.2.4", "10.1.9.9", "10.9.9.9", "2001:db8::1")
	case n.values != nil:
		return r.pick(n.values...)
	case strings.Contains(n.value, "*"):
		return strings.ReplaceAll(n.value, "*", r.pick("", "9", "log", "in"))
	case n.value != "":
		return n.value
	}
	return r.pick(requestValues...)
}
