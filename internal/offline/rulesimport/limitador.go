package rulesimport

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/internal/offline/yamltree"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// Limitador reads a limits file of Limitador, or the limits of a Limitador resource of Kubernetes.
// Each namespace is a domain.
func Limitador(name string, data []byte) (*Imported, error) {
	documents, err := documentsOf(name, data)
	if err != nil {
		return nil, err
	}
	i := &Imported{name: name, additive: true}
	p := &limitador{Imported: i, known: map[string]int{}}
	for _, doc := range documents {
		list := doc
		if doc.IsMap() {
			list = doc.Get("spec", "limits")
		}
		if !list.IsList() {
			return nil, doc.Errorf("want a list of limits, as LIMITS_FILE has it, or a Limitador resource with spec.limits")
		}
		for _, n := range list.Items() {
			p.read(n)
		}
	}
	for _, l := range p.limits {
		p.add(l)
	}
	if len(p.limits) > 0 {
		i.note(p.limits[0].line, "Limitador charges all limits of a request or none: set STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true "+
			"for Weir to do so across descriptors")
		i.note(p.limits[0].line, "Envoy must send one descriptor for each list of keys in the rules, in their order; weir gen envoy writes them")
	}
	return i, nil
}

// A limitador reads limits.
type limitador struct {
	*Imported
	limits []limitadorLimit
	order  []string // the keys of all limits, in the order in which they first occur
	known  map[string]int
}

// A limitadorLimit is a limit that rules can express: its conditions compare values, and its
// variables are values.
type limitadorLimit struct {
	line      int
	namespace string
	index     string            // which descriptor the limit reads; "" if none is named
	values    map[string]string // the compared values, by key; "" for a variable
	limit     rulesyaml.DraftLimit
}

// reference matches a reference to a value of a descriptor, in the present or the former syntax.
const reference = `(?:descriptors\[(\d+)\](?:\.([A-Za-z_][A-Za-z0-9_]*)|\[(?:'([^'\\]+)'|"([^"\\]+)")\])|([A-Za-z_][A-Za-z0-9_.:/-]*))`

var (
	variable  = regexp.MustCompile(`^\s*` + reference + `\s*$`)
	condition = regexp.MustCompile(`^\s*` + reference + `\s*==\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*$`)
)

func (p *limitador) read(n yamltree.Tree) {
	p.checked(n, "id", "namespace", "max_value", "seconds", "name", "conditions", "variables")
	l := limitadorLimit{line: n.Line(), namespace: n.Get("namespace").Text(), values: map[string]string{}}
	if l.namespace == "" {
		p.problem(n.Line(), "the limit has no namespace")
		return
	}
	before := p.found
	p.readRate(&l, n)
	if p.found > before {
		return
	}
	for _, c := range n.Get("conditions").Items() {
		for _, part := range conjuncts(c.Text()) {
			p.readCondition(&l, c, part)
		}
	}
	for _, v := range n.Get("variables").Items() {
		p.readVariable(&l, v)
	}
	if p.found > before {
		return
	}
	if len(l.values) == 0 {
		// A descriptor needs at least one entry.
		p.flag("--from generic_key=constant")
		l.values["generic_key"] = l.namespace
		p.order = append(p.order, "generic_key")
	}
	p.limits = append(p.limits, l)
}

// readRate reads the maximum and the window of a limit.
func (p *limitador) readRate(l *limitadorLimit, n yamltree.Tree) {
	maximum, ok := n.Get("max_value").Number(maxRequests)
	if !ok {
		p.problem(cmp.Or(n.Get("max_value").Line(), n.Line()), "max_value is not a whole number from 0 to %d", int64(maxRequests))
		return
	}
	seconds, ok := n.Get("seconds").Number(maxSeconds)
	if !ok || seconds == 0 {
		p.problem(cmp.Or(n.Get("seconds").Line(), n.Line()), "seconds is not a whole number from 1 to %d", maxSeconds)
		return
	}
	unit, multiplier := windowOf(seconds)
	l.limit = rulesyaml.DraftLimit{
		Unit: unit, UnitMultiplier: multiplier, RequestsPerUnit: maximum, WindowStart: "first_hit", CountDenied: uncounted,
		Name: n.Get("name").Text(),
	}
}

// readCondition reads one comparison of the condition c.
func (p *limitador) readCondition(l *limitadorLimit, c yamltree.Tree, comparison string) {
	m := condition.FindStringSubmatch(comparison)
	if m == nil || strings.HasPrefix(m[5], "limit.") || m[6]+m[7] == "" || strings.Contains(m[6]+m[7], "*") {
		p.problem(c.Line(), "the condition %s does not compare a descriptor with a text: rules match only values", strings.TrimSpace(comparison))
		return
	}
	p.addValue(l, c, m, m[6]+m[7])
}

func (p *limitador) readVariable(l *limitadorLimit, v yamltree.Tree) {
	m := variable.FindStringSubmatch(v.Text())
	if m == nil || strings.HasPrefix(m[5], "limit.") {
		p.problem(v.Line(), "the variable %s is not a value of a descriptor: rules count by values only", v.Text())
		return
	}
	p.addValue(l, v, m, "")
}

// addValue adds the key of a match of reference, with its value, to l.
func (p *limitador) addValue(l *limitadorLimit, n yamltree.Tree, match []string, value string) {
	of, key := match[1], match[2]+match[3]+match[4]+match[5]
	if len(l.values) == 0 {
		l.index = of
	}
	if of != l.index {
		p.problem(n.Line(), "the limit reads %s and %s, and a rule has one descriptor", source(l.index), source(of))
	}
	if known := l.values[key]; known != "" && value != "" && known != value {
		p.problem(n.Line(), "no request has %s with the values %q and %q", key, known, value)
	}
	l.values[key] = cmp.Or(l.values[key], value)
	if !slices.Contains(p.order, key) {
		p.order = append(p.order, key)
	}
}

// source names the descriptor with an index, "" for a key without descriptors[N].
func source(index string) string {
	if index == "" {
		return "a key without descriptors[N]"
	}
	return "descriptors[" + index + "]"
}

// quotedOrAnd matches a text in quotes, whose end may be missing, or &&.
var quotedOrAnd = regexp.MustCompile(`'[^']*'?|"[^"]*"?|&&`)

// conjuncts splits a condition at && outside of quotes.
func conjuncts(text string) (parts []string) {
	start := 0
	for _, m := range quotedOrAnd.FindAllStringIndex(text, -1) {
		if text[m[0]] == '&' {
			parts, start = append(parts, text[start:m[0]]), m[1]
		}
	}
	return append(parts, text[start:])
}

// add puts a limit into the tree of its domain.
func (p *limitador) add(l limitadorLimit) {
	var path []descriptors.NodeSpec
	used := map[string]bool{}
	identity := fmt.Sprintf("%q %s %d", l.namespace, l.limit.Unit, l.limit.UnitMultiplier)
	for _, key := range p.order {
		if value, ok := l.values[key]; ok && !used[key] {
			used[key] = true
			path = append(path, entry(key, value))
			identity += fmt.Sprintf(" %q=%q", key, value)
		}
	}
	if first, twice := p.known[identity]; twice {
		p.problem(l.line, "the limit has the namespace, conditions, variables and seconds of that in line %d: Limitador keeps one of them", first)
		return
	}
	p.known[identity] = l.line
	addLimit(p.addDomain(l.namespace).rules.At(path), l.limit)
}
