package envoygen

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// checkSource returns an error if a source never sends a value that the node matches.
func (g *generator) checkSource(s *source, n *descriptors.NodeSpec) error {
	exact := exactValues(n)
	if err := s.checkKey(n.Key); err != nil {
		return err
	}
	switch s.kind {
	case fromAddress:
		g.Address = true
		for _, v := range exact {
			if a, err := netip.ParseAddr(v); err != nil || a.String() != v {
				return fmt.Errorf("envoy sends %s as an address such as 192.0.2.1 or 2001:db8::1, which is never %q: write such an address, "+
					"or cidr", n.Key, v)
			}
		}
	case fromMasked:
		g.Address = true
		if g.prefixKeys[n.Key] {
			return fmt.Errorf("envoy sends %s as a prefix such as 192.0.2.0/24, and cidr matches only addresses: write the key "+
				"remote_address", n.Key)
		}
		return g.maskErr
	case fromPath:
		g.Path = true
		for _, v := range exact {
			if !isNormal(v) {
				return fmt.Errorf("envoy sends the path in normal form, without its query, so it is never %q: write a path such as /a/b, or "+
					"set --from '%s=header::path'", v, n.Key)
			}
		}
	case fromMatch, fromStatus:
		if len(exact) == 0 {
			return fmt.Errorf("--from has a %s for %s, and the rule names no exact value: write value or values", s.kind, n.Key)
		}
		for _, v := range exact {
			if s.conditions[v] == nil {
				return fmt.Errorf("--from does not say when %s is %q: add --from '%s=%s:%s=...'", n.Key, v, n.Key, s.kind, v)
			}
		}
	}
	return nil
}

// neverInPath matches texts that Envoy's normalization rewrites or rejects, and those that do not
// belong to a path: backslashes, double slashes, and bytes that a URL escapes. It also matches
// escapes of slashes, and those of letters, digits, '-', '.', '_' and '~', which Envoy decodes.
var neverInPath = regexp.MustCompile(`[?#\\]|//|[^!-~]|(?i:%(2[def]|3[0-9]|4[1-9a-f]|5[0-9acf]|6[1-9a-f]|7[0-9ae]))`)

// isNormal reports whether Envoy may send text as a path: it begins with /, has neither an empty
// segment nor a segment of dots, and no match of neverInPath.
func isNormal(text string) bool {
	clean := path.Clean(text)
	return strings.HasPrefix(text, "/") && (text == clean || text == clean+"/") && !neverInPath.MatchString(text)
}

// mask sets the lengths of prefixes from the values of the rules. Envoy sends one prefix for each
// address, so all values must have the same length.
func (s *source) mask(key string, exact []string) error {
	for _, v := range exact {
		prefix, err := netip.ParsePrefix(v)
		if err != nil || prefix.Masked().String() != v {
			return fmt.Errorf("envoy sends %s as a prefix such as 192.0.2.0/24, which is never %q: write such a prefix", key, v)
		}
		length, bits := &s.v4, uint32(prefix.Bits())
		if prefix.Addr().Is6() {
			length = &s.v6
		}
		if *length != nil && **length != bits {
			return fmt.Errorf("envoy sends one prefix of an address, of length %d, and a rule has %s: use the key remote_address with "+
				"cidr", **length, v)
		}
		*length = &bits
	}
	return nil
}

// leaseOf returns the kind of leases of a rule. It reports a problem if the arguments do not fit
// the rule.
func (g *generator) leaseOf(rule *descriptors.Rule, entries []entry) (kind leaseKind, ok bool) {
	at := rule.Source()
	d := &descriptor{entries: entries}
	keys := d.keys()
	cost, hits := g.cost[keys], g.hits[keys]
	g.used[argument{"cost", keys}], g.used[argument{"hits", keys}] = true, true
	status := d.usesStatus()
	for i := range rule.Limits {
		l := &rule.Limits[i]
		switch {
		case l.IsConcurrency():
			kind = max(kind, slotLease)
		case l.Reserves():
			kind = reservation
		case cost != "" && !l.Spec().CountDenied && !rule.UsesLeases():
			g.problem(at, "the cost is charged at the end, and this limit does not count a cost that exceeds it: write count_denied: "+
				"true with a fixed_window, or reserve")
			return kind, false
		case (cost != "" || status) && l.PeeksOver():
			g.note(at, "requests are denied once the usage exceeds %d; write peek: would_fit to deny them at %d", l.RequestsPerUnit,
				l.RequestsPerUnit)
		}
	}
	switch {
	case kind != noLease && status:
		g.problem(at, "a limit with leases cannot depend on the status of the response: give %s another source", keys)
	case kind == reservation && (cost == "" || hits == ""):
		g.problem(at, "reserve needs the estimate and the actual cost, which the rules do not have: set --hits '%s=100' and --cost "+
			"'%s=%%RESP(x-cost)%%'", keys, keys)
	case kind == slotLease && cost != "":
		g.problem(at, "a limit of concurrency has no cost at the end of a request: remove --cost '%s=%s'", keys, cost)
	case kind == noLease && (cost != "" || status) && hits != "":
		g.problem(at, "the hits are charged at the end of the request: remove --hits '%s=%s'", keys, hits)
	default:
		return kind, true
	}
	return kind, false
}

// finish reports constants that would be counted twice. Without another problem, it reports an
// argument without an effect.
func (g *generator) finish() {
	for _, r := range g.routes {
		g.checkShared(r)
		g.checkReplaced(r)
		for _, d := range r.descriptors {
			g.AtEnd = g.AtEnd || g.chargesAtEnd(d) || d.lease != noLease
		}
	}
	if len(g.problems) == 0 {
		g.checkUsed()
	}
}

// chargesAtEnd reports whether Envoy charges a descriptor without leases only at the end of a
// request.
func (c *Config) chargesAtEnd(d *descriptor) bool {
	return d.lease == noLease && (c.cost[d.keys()] != "" || d.usesStatus())
}

// checkReplaced reports a rule that replaces another one at the beginning of a request, but not at
// its end, where Envoy charges the other one. The call at the end has only descriptors that Envoy
// charges then, and those that end a lease, which replace nothing.
func (g *generator) checkReplaced(r *route) {
	late := map[string]*descriptors.Rule{} // by the names of their limits
	for _, d := range r.descriptors {
		for _, rule := range d.rules {
			if !g.chargesAtEnd(d) || rule.Unlimited {
				continue
			}
			late[rule.LimitName] = rule
			for i := range rule.Limits {
				late[rule.Limits[i].Name] = rule
			}
		}
	}
	for _, d := range r.descriptors {
		if g.chargesAtEnd(d) {
			continue
		}
		remedy := fmt.Sprintf("Envoy does not send %s then: set --cost '%s=...' too", d.keys(), d.keys())
		if d.lease != noLease {
			remedy = "at the end a rule with leases replaces nothing: move replaces to a rule without leases"
		}
		for _, rule := range d.rules {
			for _, name := range rule.Replaces {
				if other := late[name]; other != nil {
					g.problem(rule.Source(), "this rule replaces that of %s, which Envoy charges at the end of a request, and %s",
						other.Source(), remedy)
				}
			}
		}
	}
}

// checkUsed reports the first argument without an effect.
func (g *generator) checkUsed() {
	for _, key := range slices.Sorted(maps.Keys(g.from)) {
		if !g.used[argument{"from", key}] {
			g.problem("", "no rule has the key %s, which --from or --route names; %s", key, nearest(key, slices.Sorted(maps.Keys(g.ruleValues))))
			return
		}
	}
	for _, a := range append(argumentsOf("cost", g.cost), argumentsOf("hits", g.hits)...) {
		if !g.used[a] {
			g.problem("", "no rule has the keys %s, which --%s names; %s", a.keys, a.flag, nearest(a.keys, slices.Sorted(maps.Keys(g.paths))))
			return
		}
	}
}

func argumentsOf(flag string, hits map[string]string) (all []argument) {
	for _, keys := range slices.Sorted(maps.Keys(hits)) {
		all = append(all, argument{flag, keys})
	}
	return all
}

// checkShared reports a rule with one counter for several constants that a route sends together.
func (g *generator) checkShared(r *route) {
	type node struct {
		rule  *descriptors.Rule
		index int
	}
	sent := map[node]string{}
	for _, d := range r.descriptors {
		for _, rule := range d.rules {
			nodes := rule.Path()
			for i, e := range d.entries {
				if e.source.kind != fromConstant || !nodes[i].ShareThreshold {
					continue
				}
				if other, twice := sent[node{rule, i}]; twice && other != e.value {
					g.problem(rule.Source(),
						"Envoy sends %s with the values %s and %s for each request, and share_threshold counts both: set --route for each value",
						e.key, other, e.value)
				}
				sent[node{rule, i}] = e.value
			}
		}
	}
}
