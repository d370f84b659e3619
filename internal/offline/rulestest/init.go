package rulestest

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Init returns a file of tests for rules. The tests pass. For each limit, one test fills the limit,
// expects the denial, and expects the outcome after the wait. A comment names each limit that no
// test can reach. The tests name the rules by paths relative to file, the path at which the caller
// will write the tests; "" stands for the working directory.
func Init(o InitOptions, file string) ([]byte, error) {
	rules, err := o.load()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Tests of %s, written by weir test --init. They show what the rules do. Change them to what the rules must do.\n",
		filepath.Base(o.Rules))
	b.WriteString("# yaml-language-server: $schema=https://raw.githubusercontent.com/weir-rls/weir/main/docs/test.schema.json\n")
	if err := writeHeader(&b, o, file); err != nil {
		return nil, err
	}
	b.WriteString("tests:\n")
	g := &generator{rules: rules, months: o.CalendarMonths, out: &b, names: map[string]int{}}
	domains, n := rules.Counts()
	if n == 0 {
		return nil, errors.New("the rules have no limits, so there is nothing to test")
	}
	g.severalDomains = domains > 1
	for rule := range rules.All() {
		g.writeTests(rule)
	}
	if g.tests == 0 {
		return nil, fmt.Errorf("no test can reach a limit of the rules:\n%s", strings.TrimSpace(b.String()))
	}
	return []byte(b.String()), nil
}

// writeHeader writes the keys of the file before its tests.
func writeHeader(b *strings.Builder, o InitOptions, file string) error {
	for _, named := range []struct{ key, path string }{{"rules", o.Rules}, {"overlay", o.Overlay}} {
		if named.path == "" {
			continue
		}
		path, err := relativeTo(named.path, file)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s: %s\n", named.key, rulesyaml.Quoted(path))
	}
	var options []string
	if o.CalendarMonths {
		options = append(options, "use_calendar_month_rate_limit: true")
	}
	if o.MergeDomains {
		options = append(options, "merge_domain_config: true")
	}
	if len(options) > 0 {
		fmt.Fprintf(b, "options: {%s}\n", strings.Join(options, ", "))
	}
	return nil
}

// relativeTo returns a path relative to the folder of a file, or the path if it is absolute.
func relativeTo(path, file string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	from, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	relative, err := filepath.Rel(from, to)
	return filepath.ToSlash(relative), err
}

// A generator writes the tests of rules.
type generator struct {
	rules          *descriptors.Rules
	months         bool // a month is a calendar month
	severalDomains bool
	out            *strings.Builder
	names          map[string]int // tests, by name without a number
	tests          int
}

// writeTests writes the tests of a rule, or comments with the reasons why there are none.
func (g *generator) writeTests(rule *descriptors.Rule) {
	entries := g.findEntries(rule)
	if entries == nil {
		g.writeUnreached(rule, "", "every request that it matches goes to another rule")
		return
	}
	if reason := unwritable(entries); reason != "" {
		g.writeUnreached(rule, "", reason)
		return
	}
	if rule.Unlimited {
		w := g.newStepWriter(rule, entries, defaultStart)
		w.send(stepSpec{hits: 1})
		g.writeTest(rule, "unlimited", w)
		return
	}
	denied := make([]bool, len(rule.Limits))
	for i := range rule.Limits {
		if denied[i] {
			continue
		}
		w, err := g.deny(rule, i, entries)
		if err != nil {
			g.writeUnreached(rule, rule.Limits[i].RateText(), err.Error())
			continue
		}
		for j := range denied {
			denied[j] = denied[j] || w.denied[j]
		}
		g.writeTest(rule, rule.Limits[i].RateText(), w)
	}
}

// unwritable returns the reason why no step can have these entries, or "".
func unwritable(entries []descriptors.Entry) string {
	for _, e := range entries {
		switch {
		case strings.Contains(e.Value, number):
			return "a value contains " + number + ", which a test replaces"
		case strings.TrimSpace(e.Key) != e.Key:
			return "a key begins or ends with a space, which a test leaves out"
		}
	}
	return ""
}

func (g *generator) writeUnreached(rule *descriptors.Rule, limit, reason string) {
	name := rulesyaml.Quoted(strings.Join(strings.Fields(rule.Name+" "+limit), " ")) // a comment has no control characters
	if source := rule.Source(); source != "" {
		name += " (" + source + ")"
	}
	fmt.Fprintf(g.out, "  # Not tested: %s: %s.\n", name, reason)
}

// writeTest writes the steps of a stepWriter as a test.
func (g *generator) writeTest(rule *descriptors.Rule, about string, w *stepWriter) {
	name := rule.Name + ": " + about
	if g.severalDomains {
		name = rule.Domain + ": " + name
	}
	g.names[name]++
	if g.names[name] > 1 {
		name += fmt.Sprintf(" (%d)", g.names[name])
	}
	g.tests++
	fmt.Fprintf(g.out, "  - name: %s\n", rulesyaml.Quoted(name))
	if g.severalDomains {
		fmt.Fprintf(g.out, "    domain: %s\n", rulesyaml.Quoted(rule.Domain))
	}
	if !w.start.Equal(defaultStart) {
		fmt.Fprintf(g.out, "    start: %s\n", w.start.Format(time.RFC3339Nano))
	}
	g.out.WriteString("    steps:\n")
	for _, step := range w.steps {
		g.out.WriteString(step)
	}
}

// maxTried bounds the search for a request that reaches a rule.
const maxTried = 20_000

// findEntries returns entries that reach a rule, or nil.
func (g *generator) findEntries(rule *descriptors.Rule) []descriptors.Entry {
	nodes := rule.Path()
	choices := make([][]descriptors.Entry, len(nodes))
	for i := range nodes {
		choices[i] = choicesOf(&nodes[i])
	}
	domain, tried := g.rules.Domain(rule.Domain), 0
	entries := make([]descriptors.Entry, len(nodes))
	var search func(level int) bool
	search = func(level int) bool {
		if level == len(nodes) {
			tried++
			return domain.Match(entries) == rule
		}
		for _, choice := range choices[level] {
			entries[level] = choice
			if search(level + 1) {
				return true
			}
			if tried > maxTried {
				return false
			}
		}
		return false
	}
	if !search(0) {
		return nil
	}
	return entries
}

// anyTexts are texts for a '*', and values that rules rarely name.
var anyTexts = []string{"example", "1", "x", "", "other", "a-b_c", "192.0.2.1", "2001:db8::1"}

// choicesOf returns entries that a node matches, simplest first. Another node may match some of
// them earlier.
func choicesOf(n *descriptors.NodeSpec) []descriptors.Entry {
	var all []descriptors.Entry
	switch {
	case len(n.Values) > 0:
		for _, v := range n.Values {
			all = append(all, descriptors.Entry{Key: n.Key, Value: v})
		}
		return all
	case len(n.Prefixes) > 0:
		for _, p := range n.Prefixes {
			for _, address := range addressesOf(p) {
				all = append(all, descriptors.Entry{Key: n.Key, Value: address.String()})
			}
		}
		return all
	}
	for _, key := range fillStars(n.Key) {
		values := fillStars(n.Value)
		if n.Value == "" {
			values = anyTexts
		}
		for _, v := range values {
			all = append(all, descriptors.Entry{Key: key, Value: v})
		}
	}
	return all
}

// addressesOf returns addresses of a prefix: those with at most one bit set after it. Longer
// prefixes may take some of them.
func addressesOf(p netip.Prefix) []netip.Addr {
	first := p.Masked().Addr()
	var all []netip.Addr
	for bit := first.BitLen() - 1; bit >= p.Bits(); bit-- {
		bytes := first.AsSlice()
		bytes[bit/8] |= 1 << (7 - bit%8)
		address, _ := netip.AddrFromSlice(bytes)
		all = append(all, address)
	}
	return append(all, first)
}

// fillStars returns texts that a pattern matches.
func fillStars(pattern string) []string {
	if !strings.Contains(pattern, "*") {
		return []string{pattern}
	}
	var all []string
	for _, text := range anyTexts {
		all = append(all, strings.ReplaceAll(pattern, "*", text))
	}
	return append(all, strings.ReplaceAll(pattern, "*", fmt.Sprint(len(pattern))+"th"))
}
