package envoygen

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rls/weir/pkg/descriptors"
)

// maxDescriptors bounds the descriptors of a route. Envoy evaluates all of them for each request.
const maxDescriptors = 1000

// A route lists the descriptors that Envoy sends for its requests.
type route struct {
	match       string            // a prefix of the path or, in an EnvoyFilter, the name of a route; "" for every request
	constants   map[string]string // the values of the keys that are constants on this route
	descriptors []*descriptor
	byText      map[string]*descriptor
}

// A descriptor is one that Envoy sends.
type descriptor struct {
	entries []entry
	lease   leaseKind
	rules   []*descriptors.Rule
}

// An entry is an entry of a descriptor. An action of Envoy makes it.
type entry struct {
	key    string
	source *source
	value  string // the value of a constant, a match or a status
}

// A leaseKind is the kind of leases that the rules of a descriptor have. A later kind needs more
// calls of Envoy than the one before.
type leaseKind int

const (
	noLease     leaseKind = iota // one call, at the beginning of a request
	slotLease                    // a second call releases the slot at the end
	reservation                  // the first call has an estimate, and a second one settles it at the end
)

// String implements [fmt.Stringer].
func (k leaseKind) String() string {
	return [...]string{noLease: "no leases", slotLease: "leases", reservation: "reservations"}[k]
}

// keys returns the keys of d as arguments name them, see joined.
func (d *descriptor) keys() string {
	names := make([]string, len(d.entries))
	for i, e := range d.entries {
		names[i] = e.key
	}
	return JoinKeys(names)
}

var escapeKey = strings.NewReplacer(`\`, `\\`, ".", `\.`)

// JoinKeys returns keys in the form of arguments of weir gen, such as user_id.action. A backslash
// precedes each dot and backslash of a key.
func JoinKeys(keys []string) string {
	escaped := make([]string, len(keys))
	for i, key := range keys {
		escaped[i] = escapeKey.Replace(key)
	}
	return strings.Join(escaped, ".")
}

// usesStatus reports whether an entry is the status of the response.
func (d *descriptor) usesStatus() bool {
	return slices.ContainsFunc(d.entries, func(e entry) bool { return e.source.kind == fromStatus })
}

// A generator derives the descriptors of a [Config] from rules.
type generator struct {
	*Config
	problems   Problems
	from       map[string]*source
	used       map[argument]bool          // those with an effect
	ruleValues map[string]map[string]bool // the exact values of each key in the rules
	paths      map[string]bool            // the keys of all rules, joined
	prefixKeys map[string]bool            // the keys that nodes match with prefixes
	masked     *source                    // the source masked_remote_address, whose lengths hold for all rules
	maskErr    error                      // why no lengths fit all of them
}

// An argument is a --from, with its key, or a --cost or --hits, with the keys of a descriptor.
type argument struct{ flag, keys string }

// readArguments reads the options that name keys.
func (g *generator) readArguments() error {
	g.from, g.used = map[string]*source{}, map[argument]bool{}
	for _, text := range g.o.From {
		key, from, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return fmt.Errorf("--from %q: write KEY=SOURCE, such as user_id=header:x-user-id", text)
		}
		s, err := readSource(key, from, g.from[key])
		if err != nil {
			return fmt.Errorf("--from %q: %w", text, err)
		}
		g.from[key] = s
	}
	var err error
	g.hits, err = readHits("hits", g.o.Hits)
	if err != nil {
		return err
	}
	g.cost, err = readHits("cost", g.o.Cost)
	if err != nil {
		return err
	}
	for _, text := range g.o.Routes {
		if err := g.readRoute(text); err != nil {
			return fmt.Errorf("--route %q: %w", text, err)
		}
	}
	if !slices.ContainsFunc(g.routes, func(r *route) bool { return r.match == "" }) {
		g.routes = append(g.routes, &route{byText: map[string]*descriptor{}})
	}
	// Envoy takes the first route that matches.
	slices.SortStableFunc(g.routes, func(a, b *route) int { return len(b.match) - len(a.match) })
	return nil
}

// readHits reads arguments such as tenant=%BYTES_SENT%, by their keys.
func readHits(flag string, all []string) (map[string]string, error) {
	read := map[string]string{}
	for _, text := range all {
		keys, hits, ok := strings.Cut(text, "=")
		if !ok || keys == "" || hits == "" {
			return nil, fmt.Errorf("--%s %q: write KEYS=HITS, such as tenant=%%BYTES_SENT%% or user_id.action=10", flag, text)
		}
		if n, err := strconv.ParseUint(hits, 10, 64); err == nil && n > 1e9 || err != nil && !isFormat(hits) {
			return nil, fmt.Errorf("--%s %q: want a number of at most 1000000000, or one command operator such as %%RESP(x-cost)%%", flag, text)
		}
		if read[keys] != "" {
			return nil, fmt.Errorf("--%s names %s twice: remove one", flag, keys)
		}
		read[keys] = hits
	}
	return read, nil
}

// isFormat reports whether the text is one command of Envoy's formats.
func isFormat(text string) bool {
	return len(text) > 2 && text[0] == '%' && text[len(text)-1] == '%' && !strings.Contains(text[1:len(text)-1], "%")
}

func (g *generator) readRoute(text string) error {
	match, pairs, ok := strings.Cut(text, ":")
	if !ok || pairs == "" {
		return errors.New("write PREFIX:KEY=VALUE, such as /login:generic_key=login")
	}
	if match == "/" {
		match = ""
	}
	if slices.ContainsFunc(g.routes, func(r *route) bool { return r.match == match }) {
		return errors.New("the route is given twice: give it once, with its pairs joined by commas")
	}
	r := &route{match: match, constants: map[string]string{}, byText: map[string]*descriptor{}}
	for pair := range strings.SplitSeq(pairs, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" || value == "" {
			return errors.New("write KEY=VALUE after the colon, such as generic_key=login")
		}
		if r.constants[key] != "" {
			return fmt.Errorf("the key %s is given twice: remove one, because a route sends one value", key)
		}
		if s := g.from[key]; s != nil && s.kind != fromConstant {
			return fmt.Errorf("--from has another source of the key %s: remove that --from", key)
		}
		r.constants[key] = value
		g.from[key] = &source{kind: fromConstant, isSet: true}
	}
	g.routes = append(g.routes, r)
	return nil
}

// assigned reports whether a route has a value of a key.
func (g *generator) assigned(key string) bool {
	return slices.ContainsFunc(g.routes, func(r *route) bool { return r.constants[key] != "" })
}

// collect sets ruleValues and paths from the rules. It sets prefixKeys and masked from all nodes of
// the domain, because a node without a limit may exempt requests.
func (g *generator) collect(domain *descriptors.Domain, rules []*descriptors.Rule) {
	g.prefixKeys = domain.PrefixKeys()
	const key = string(fromMasked)
	g.masked = g.from[key]
	if g.masked == nil || g.masked.kind != fromMasked {
		g.masked = &source{kind: fromMasked}
	}
	g.maskErr = g.masked.mask(key, domain.ExactValues(key))
	g.ruleValues, g.paths = map[string]map[string]bool{}, map[string]bool{}
	for _, rule := range rules {
		var path []string
		for _, n := range rule.Path() {
			path = append(path, n.Key)
			if g.ruleValues[n.Key] == nil {
				g.ruleValues[n.Key] = map[string]bool{}
			}
			for _, v := range exactValues(&n) {
				g.ruleValues[n.Key][v] = true
			}
		}
		g.paths[JoinKeys(path)] = true
	}
	for key, s := range g.from {
		s.nameOnlyStatusValue(g.ruleValues[key])
	}
}

// nameOnlyStatusValue gives the codes of a --from without a value to the value that the rules have
// for the key, if they have only one.
func (s *source) nameOnlyStatusValue(ruleValues map[string]bool) {
	codes := s.conditions[""]
	if s.kind != fromStatus || codes == nil || len(ruleValues) != 1 {
		return
	}
	for only := range ruleValues {
		s.conditions = map[string]*condition{only: codes}
	}
}

// exactValues returns the values that a node names without a wildcard.
func exactValues(n *descriptors.NodeSpec) []string {
	if n.Value != "" && !strings.Contains(n.Value, "*") {
		return []string{n.Value}
	}
	return n.Values
}

// addRule adds the descriptors of a rule to each route.
func (g *generator) addRule(rule *descriptors.Rule) {
	nodes, at := rule.Path(), rule.Source()
	entries := make([]entry, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if strings.Contains(n.Key, "*") {
			g.problem(at, "the key %q has a wildcard, so it does not name the key that Envoy must send: write one rule for each key", n.Key)
			return
		}
		sourceOf := g.sourceOf
		if rule.UsesLeases() && i == len(nodes)-1 {
			sourceOf = g.idSourceOf
		}
		s, err := sourceOf(n, at)
		if err == nil {
			err = g.checkSource(s, n)
		}
		if err != nil {
			g.problem(at, "%s", err)
			return
		}
		g.noteUnchecked(s, n.Key, at)
		entries[i] = entry{key: n.Key, source: s}
	}
	lease, ok := g.leaseOf(rule, entries)
	if !ok {
		return
	}
	sent := false
	for _, r := range g.routes {
		for _, alternative := range g.alternatives(r, nodes, entries) {
			sent = true
			if !g.addDescriptor(r, rule, alternative, lease) {
				return
			}
		}
	}
	if !sent {
		g.problem(at, "no route sends %s: add it to --route, such as --route /PREFIX:%s", unsent(nodes, entries), unsent(nodes, entries))
	}
}

// noteUnchecked adds a note for a source that neither the rules nor weir can check.
func (g *generator) noteUnchecked(s *source, key, at string) {
	switch s.kind {
	case fromHost:
		g.note(at, "%s: a client chooses the case of the host and may add a port, so one host has many values: use a generic_key for each "+
			"Envoy virtual host instead", key)
	case fromCEL:
		g.note("", "%s: only Envoy checks the CEL expression: start Envoy with --mode validate before you use the configuration", key)
	}
}

// unsent names the constants that a rule needs.
func unsent(nodes []descriptors.NodeSpec, entries []entry) string {
	var all []string
	for i, e := range entries {
		if values := exactValues(&nodes[i]); e.source.kind == fromConstant && len(values) > 0 {
			all = append(all, e.key+"="+values[0])
		} else if e.source.kind == fromConstant {
			all = append(all, e.key+"=VALUE")
		}
	}
	return strings.Join(all, ",")
}

// idSourceOf returns the source of the key whose value is the id of a request.
func (g *generator) idSourceOf(n *descriptors.NodeSpec, at string) (*source, error) {
	s := g.from[n.Key]
	if s == nil {
		g.Leases = true
		return &source{kind: fromRequestID, arg: idHeader}, nil
	}
	g.used[argument{"from", n.Key}] = true
	if s.kind != fromHeader {
		return nil, fmt.Errorf("the value of %s is the id of the request: it comes from a header, and not from %s: write "+
			"--from '%s=header:NAME'", n.Key, s.kind, n.Key)
	}
	g.note(at, "the id of a request comes from the header %s: a filter must set it for each request, and no client may choose it", s.arg)
	return s, nil
}

// sourceOf returns the source of the key of a level.
func (g *generator) sourceOf(n *descriptors.NodeSpec, at string) (*source, error) {
	if s := g.from[n.Key]; s != nil {
		g.used[argument{"from", n.Key}] = true
		return s, nil
	}
	if g.prefixKeys[n.Key] && wellKnown[strings.ToLower(n.Key)].kind == "" {
		g.note(at, "%s: the address of the client, because a rule has prefixes; --from '%s=header:NAME' names a header", n.Key, n.Key)
		return &source{kind: fromAddress}, nil
	}
	s, unknown, err := defaultSource(n)
	if err != nil {
		return nil, err
	}
	if s.kind == fromMasked {
		return g.masked, nil
	}
	if unknown {
		g.note("", "%s: the header %s, because no --from names a source; a filter must set it, because a client can write any header",
			n.Key, s.arg)
	}
	if s.kind == fromConstant && len(g.ruleValues[n.Key]) > 1 {
		all := slices.Sorted(maps.Keys(g.ruleValues[n.Key]))
		return nil, fmt.Errorf("%s has the values %s, and the rules do not say which route sends which: set --route '/PREFIX:%s=%s', "+
			"or --from %s=constant to send all of them with every request",
			n.Key, strings.Join(all, ", "), n.Key, all[0], n.Key)
	}
	return &s, nil
}

// alternatives returns the entries of a rule on a route, once for each combination of constants. It
// returns none if a route lacks a value of a constant.
func (g *generator) alternatives(r *route, nodes []descriptors.NodeSpec, entries []entry) [][]entry {
	all := [][]entry{nil}
	for i, e := range entries {
		values := []string{""}
		switch e.source.kind {
		case fromConstant:
			values = g.constantsOf(r, &nodes[i])
		case fromMatch, fromStatus:
			values = exactValues(&nodes[i])
		}
		var longer [][]entry
		for _, before := range all {
			for _, v := range values {
				e.value = v
				longer = append(longer, append(slices.Clone(before), e))
			}
			if len(longer) > maxDescriptors {
				break
			}
		}
		all = longer
	}
	return all
}

// constantsOf returns the values of a constant on a route that a level matches.
func (g *generator) constantsOf(r *route, n *descriptors.NodeSpec) []string {
	value, given := r.constants[n.Key]
	if !g.assigned(n.Key) {
		return exactValues(n)
	}
	entry := descriptors.Entry{Key: n.Key, Value: value}
	if given && (slices.Contains(n.Values, value) || len(n.Values)+len(n.Prefixes) == 0 && n.Covers(entry)) {
		return []string{value}
	}
	return nil
}

// addDescriptor adds a descriptor to a route. If the route has this descriptor already,
// addDescriptor adds the rule to it.
func (g *generator) addDescriptor(r *route, rule *descriptors.Rule, entries []entry, lease leaseKind) bool {
	var text strings.Builder
	for _, e := range entries {
		if strings.ContainsRune(e.key+e.value, '\u0085') {
			g.problem(rule.Source(), "Envoy reads the character U+0085 in its configuration as an invalid byte: remove it from %s", e.key)
			return false
		}
		fmt.Fprintf(&text, "%q=%q;", e.key, e.value)
	}
	d := r.byText[text.String()]
	if d == nil {
		d = &descriptor{entries: entries, lease: lease}
		r.byText[text.String()] = d
		r.descriptors = append(r.descriptors, d)
		if len(r.descriptors) > maxDescriptors {
			g.problem(rule.Source(), "a route would send more than %d descriptors for each request: use fewer constants", maxDescriptors)
			return false
		}
	} else if d.lease != lease {
		g.problem(rule.Source(), "Envoy sends %s for this rule and for that of %s, and only one of them has %s: give them different keys",
			d.keys(), d.rules[0].Source(), max(d.lease, lease))
		return false
	}
	d.rules = append(d.rules, rule)
	if lease != noLease {
		for i := range rule.Limits {
			if ttl := rule.Limits[i].LeaseTTL(); ttl > 0 && (g.leaseTTL == 0 || ttl < g.leaseTTL) {
				g.leaseTTL = ttl
			}
		}
	}
	return true
}
