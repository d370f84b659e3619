// Package rulesimport translates limits of other rate limiters into rules.
//
//	imported, err := rulesimport.Limitador("limits.yaml", data)
//	text, err := imported.Rules("")
//
// Each limit that the rules do not express is a Problem with its position and the reason. A note names a difference that does not change
// which requests are admitted.
package rulesimport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// The bounds of an import.
const (
	MaxFile  = 4 << 20 // bytes of a file
	maxNodes = 100_000 // descriptors of the rules, also those that are repeated below exact values
)

// A Problem is a limit, or a part of one, that the rules do not express.
type Problem struct {
	At   string // file and line
	Text string
}

// String returns the problem after its position.
func (p Problem) String() string { return p.At + ": " + p.Text }

// An Imported has the rules of a file.
type Imported struct {
	// Problems are the limits that are not in the rules. Notes are differences that do not change which requests are admitted.
	Problems, Notes []Problem

	name     string // of the file
	domains  []*domain
	flags    []string // of weir gen
	additive bool     // all limits that match apply, not only the most special one
}

// A domain is a tree of rules.
type domain struct {
	name    string
	root    node
	onError string
}

// A node is a descriptor, or the root.
type node struct {
	key, value string
	values     []string
	cidr       []string
	share      bool
	shadow     bool
	limits     []limit
	below      []*node
	comment    string
}

// A limit is a rate_limit, in the order of its keys in the output.
type limit struct {
	algorithm   string
	slots       int64 // of concurrency
	unit        string
	multiplier  int64
	requests    int64
	capacity    int64
	windowStart string
	countDenied string // "false", or "" for the default
	name        string
}

// problem records a limit that is not carried over.
func (i *Imported) problem(line int, format string, values ...any) {
	i.Problems = add(i.Problems, Problem{fmt.Sprintf("%s:%d", i.name, line), fmt.Sprintf(format, values...)})
}

// note records a difference.
func (i *Imported) note(line int, format string, values ...any) {
	i.Notes = add(i.Notes, Problem{fmt.Sprintf("%s:%d", i.name, line), fmt.Sprintf(format, values...)})
}

func add(to []Problem, p Problem) []Problem {
	if slices.Contains(to, p) {
		return to
	}
	return append(to, p)
}

// flag records an argument that weir gen needs for the rules.
func (i *Imported) flag(format string, values ...any) {
	if f := fmt.Sprintf(format, values...); !slices.Contains(i.flags, f) {
		i.flags = append(i.flags, f)
	}
}

// Domains returns the names of the domains.
func (i *Imported) Domains() []string {
	var names []string
	for _, d := range i.domains {
		names = append(names, d.name)
	}
	return names
}

func (i *Imported) domain(name string) *domain {
	for _, d := range i.domains {
		if d.name == name {
			return d
		}
	}
	i.domains = append(i.domains, &domain{name: name})
	return i.domains[len(i.domains)-1]
}

// Rules returns the rules of a domain as YAML; name may be empty if there is only one. The text has passed the parser of rules.
func (i *Imported) Rules(name string) ([]byte, error) {
	var one *domain
	switch {
	case len(i.domains) == 0:
		return nil, fmt.Errorf("%s: no limit to import", i.name)
	case name == "" && len(i.domains) > 1:
		return nil, fmt.Errorf("%s has several domains, and a file of rules has one: set --domain to one of %s", i.name, strings.Join(i.Domains(), ", "))
	case name == "":
		one = i.domains[0]
	default:
		if n := slices.Index(i.Domains(), name); n >= 0 {
			one = i.domains[n]
		} else {
			return nil, fmt.Errorf("%s has no domain %s: set --domain to one of %s", i.name, name, strings.Join(i.Domains(), ", "))
		}
	}
	if len(one.root.below) == 0 {
		return nil, fmt.Errorf("%s: no limit of the domain %s can be imported", i.name, one.name)
	}
	if left := maxNodes; i.additive {
		if one.root.complete(&left); left < 0 {
			return nil, fmt.Errorf("%s: the rules would have more than %d descriptors", i.name, maxNodes)
		}
	}
	text := i.write(one)
	if _, err := rulesfile.Parse(rulesfile.File{Name: "the imported rules", Data: text}); err != nil {
		return nil, fmt.Errorf("%s: %w", i.name, err)
	}
	return text, nil
}

// at returns the descriptor of a path below n, and adds the missing descriptors.
func (n *node) at(path []node) *node {
	for _, step := range path {
		found := slices.IndexFunc(n.below, func(b *node) bool { return b.isLike(&step) })
		if found < 0 {
			n.below = append(n.below, &node{key: step.key, value: step.value, values: step.values, cidr: step.cidr, share: step.share})
			found = len(n.below) - 1
		}
		n = n.below[found]
	}
	return n
}

// isLike reports whether two nodes match the same entries.
func (n *node) isLike(other *node) bool {
	return n.key == other.key && n.value == other.value && slices.Equal(n.values, other.values) && slices.Equal(n.cidr, other.cidr)
}

// addLimit adds a limit. Of two limits with one window, the smaller decides.
func (n *node) addLimit(l limit) {
	for i := range n.limits {
		have := &n.limits[i]
		if have.algorithm == l.algorithm && have.unit == l.unit && have.multiplier == l.multiplier && have.windowStart == l.windowStart {
			if l.requests < have.requests || l.slots < have.slots {
				*have = l
			}
			return
		}
	}
	n.limits = append(n.limits, l)
}

// complete repeats the limits of a key without a value below every value of the key, because a value hides the key without one.
func (n *node) complete(left *int) {
	if *left -= len(n.below); *left < 0 {
		return
	}
	for _, general := range n.below {
		if general.value != "" || general.values != nil || general.cidr != nil {
			continue
		}
		for _, special := range n.below {
			if special != general && special.key == general.key && special.values == nil && special.cidr == nil {
				special.merge(general, left)
			}
		}
	}
	for _, b := range n.below {
		b.complete(left)
	}
}

// merge adds copies of the limits and descriptors of another node.
func (n *node) merge(other *node, left *int) {
	if *left -= 1 + len(other.below); *left < 0 {
		return
	}
	for _, l := range other.limits {
		n.addLimit(l)
	}
	for _, b := range other.below {
		n.at([]node{*b}).merge(b, left)
	}
}

// write returns the rules of a domain as YAML.
func (i *Imported) write(d *domain) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s by weir import.\n", comment(i.name))
	if len(i.flags) > 0 {
		fmt.Fprintf(&b, "# Envoy's half: weir gen envoy --config FILE --upstream HOST:PORT")
		for _, f := range i.flags {
			fmt.Fprintf(&b, " \\\n#   %s", comment(f))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "domain: %s\n", scalar(d.name))
	if d.onError != "" {
		fmt.Fprintf(&b, "on_store_error: %s\n", d.onError)
	}
	b.WriteString("descriptors:\n")
	for _, n := range d.root.below {
		n.write(&b, "  ")
	}
	return b.Bytes()
}

func (n *node) write(b *bytes.Buffer, indent string) {
	fmt.Fprintf(b, "%s- key: %s", indent, scalar(n.key))
	if n.comment != "" {
		fmt.Fprintf(b, " # %s", comment(n.comment))
	}
	b.WriteString("\n")
	indent += "  "
	for _, field := range []struct {
		name  string
		value any
		given bool
	}{{"value", n.value, n.value != ""}, {"values", n.values, n.values != nil}, {"cidr", n.cidr, n.cidr != nil}, {"share_threshold", true, n.share}, {"shadow_mode", true, n.shadow}} {
		if field.given {
			fmt.Fprintf(b, "%s%s: %s\n", indent, field.name, flow(field.value))
		}
	}
	switch len(n.limits) {
	case 0:
	case 1:
		fmt.Fprintf(b, "%srate_limit: {%s}\n", indent, &n.limits[0])
	default:
		fmt.Fprintf(b, "%srate_limits:\n", indent)
		for i := range n.limits {
			fmt.Fprintf(b, "%s  - {%s}\n", indent, &n.limits[i])
		}
	}
	if len(n.below) > 0 {
		fmt.Fprintf(b, "%sdescriptors:\n", indent)
		for _, child := range n.below {
			child.write(b, indent+"  ")
		}
	}
}

// String returns the fields of a limit in the flow style of YAML.
func (l *limit) String() string {
	if l.algorithm == "concurrency" {
		return fmt.Sprintf("algorithm: concurrency, concurrent_requests: %d", l.slots)
	}
	var all []string
	text := func(name, value string) {
		if value != "" {
			all = append(all, name+": "+value)
		}
	}
	text("algorithm", l.algorithm)
	text("unit", l.unit)
	if l.multiplier > 1 {
		text("unit_multiplier", fmt.Sprint(l.multiplier))
	}
	text("requests_per_unit", fmt.Sprint(l.requests))
	if l.capacity > 0 {
		text("capacity", fmt.Sprint(l.capacity))
	}
	text("window_start", l.windowStart)
	text("count_denied", l.countDenied)
	if l.name != "" {
		text("name", flow(l.name))
	}
	return strings.Join(all, ", ")
}

// comment returns a text for a comment: one line.
func comment(text string) string { return strings.Map(printable, text) }

func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
		return ' '
	}
	return r
}

// scalar returns a text as a scalar of YAML on one line.
func scalar(text string) string {
	plain, err := yaml.Marshal(text)
	if out := strings.TrimSuffix(string(plain), "\n"); err == nil && !strings.Contains(out, "\n") {
		return out
	}
	return fmt.Sprintf("%q", text)
}

// flow returns a value in the flow style of YAML.
func flow(value any) string {
	var n yaml.Node
	if err := n.Encode(value); err != nil {
		return fmt.Sprintf("%q", value)
	}
	list := yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, Content: []*yaml.Node{&n}}
	for _, child := range append(slices.Clone(n.Content), &n) {
		if child.Kind == yaml.ScalarNode && strings.ContainsAny(child.Value, "\n\r") {
			child.Style = yaml.DoubleQuotedStyle
		}
	}
	n.Style |= yaml.FlowStyle
	out, err := yaml.Marshal(&list)
	if err != nil {
		return fmt.Sprintf("%q", value)
	}
	text := strings.TrimSuffix(string(out), "\n")
	return text[1 : len(text)-1]
}

// windows are the units that a number of seconds may be a multiple of, the longest first.
var windows = []struct {
	unit    string
	seconds int64
}{{"week", 7 * 86400}, {"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}}

// windowOf returns a window of so many seconds in units.
func windowOf(seconds int64) (unit string, multiplier int64) {
	for _, w := range windows {
		if seconds%w.seconds == 0 {
			return w.unit, seconds / w.seconds
		}
	}
	return "second", seconds
}

// The largest numbers that rules may have.
const (
	maxRequests = 1<<52 - 1
	maxSeconds  = 10 * 365 * 86400
	maxSlots    = 10_000
)
