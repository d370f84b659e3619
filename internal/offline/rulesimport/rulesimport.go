// Package rulesimport translates limits of other rate limiters into rules.
//
//	imported, err := rulesimport.Limitador("limits.yaml", data)
//	text, err := imported.Rules("")
package rulesimport

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/offline/envoygen"
	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/internal/offline/yamltree"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
)

// The bounds of an import.
const (
	MaxFile  = 4 << 20 // bytes of a file, which the caller checks
	maxNodes = 100_000 // descriptors of the rules, including those that are repeated below exact values
)

// An Imported holds the rules of a file.
type Imported struct {
	// Problems are the limits, or parts of limits, that rules cannot express. Notes are differences
	// that do not change which requests are admitted. Both begin with the file and the line.
	Problems, Notes []string

	name     string // the file's name
	found    int    // the problems found, also those that Problems has already
	domains  []*domain
	flags    []string          // arguments of weir gen
	sources  map[string]string // the header or parameter of each key from [Imported.sourceKey]
	additive bool              // all matching limits apply, not only the most specific one
}

// A domain is a tree of rules.
type domain struct {
	name         string
	rules        rulesyaml.Draft
	onStoreError string
}

// documentsOf reads the documents of a YAML file.
func documentsOf(name string, data []byte) ([]yamltree.Tree, error) {
	documents, err := yamltree.Read(name, data)
	if err == nil && len(documents) == 0 {
		err = fmt.Errorf("%s: the file is empty: correct the path", name)
	}
	return documents, err
}

// checked returns t, and reports each unknown key as a problem.
func (i *Imported) checked(t yamltree.Tree, known ...string) yamltree.Tree {
	for key := range t.Fields() {
		if name := key.Text(); !slices.Contains(known, name) {
			i.problem(key.Line(), "%s is not known here, so its meaning is not carried over", name)
		}
	}
	return t
}

// entry returns the match of a key with a value, or with any value if value is "".
func entry(key, value string) descriptors.NodeSpec {
	return descriptors.NodeSpec{Entry: descriptors.Entry{Key: key, Value: value}}
}

// problem records a limit that is left out.
func (i *Imported) problem(line int, format string, values ...any) {
	i.found++
	i.Problems = i.add(i.Problems, line, format, values)
}

// note records a difference.
func (i *Imported) note(line int, format string, values ...any) {
	i.Notes = i.add(i.Notes, line, format, values)
}

// add adds a text with its file and line to a list, once.
func (i *Imported) add(to []string, line int, format string, values []any) []string {
	text := fmt.Sprintf("%s:%d: %s", i.name, line, fmt.Sprintf(format, values...))
	if slices.Contains(to, text) {
		return to
	}
	return append(to, text)
}

// flag records an argument that weir gen needs for these rules.
func (i *Imported) flag(format string, values ...any) {
	if f := fmt.Sprintf(format, values...); !slices.Contains(i.flags, f) {
		i.flags = append(i.flags, f)
	}
}

// sourceKey returns the key for a header or a parameter of the query. kind is header or query. If
// key has another source, sourceKey puts the kind before it.
func (i *Imported) sourceKey(key, kind, name string) string {
	source := kind + ":" + name
	taken := func() bool { other, found := i.sources[key]; return found && other != source }
	for envoygen.IsKnownKey(key) || slices.Contains(importKeys, key) || taken() {
		key = kind + "_" + key
	}
	if i.sources == nil {
		i.sources = map[string]string{}
	}
	i.sources[key] = source
	return key
}

// importKeys are keys that imports choose themselves.
var importKeys = []string{"rule", "route", "scope", "consumer", "credential", "lease"}

// fromFlag returns the argument of weir gen for a key from a header or a parameter.
func fromFlag(key, kind, name string) string { return fmt.Sprintf("--from %s=%s:%s", key, kind, name) }

// cannotRoute reports whether no --route can have a prefix, and then notes what to do instead. weir
// gen ends a prefix at a colon. The arguments in the comment have no quotes.
func (i *Imported) cannotRoute(line int, prefix, key, value string) bool {
	if !strings.ContainsAny(prefix, ": '\"\\$`&;|<>()") {
		return false
	}
	i.note(line, "weir gen cannot route the prefix %s: give its Envoy route the entry (%s, %s)", prefix, key, value)
	return true
}

// routeOf returns the index of the --route for a prefix among the flags, -1 if there is none.
func (i *Imported) routeOf(prefix string) int {
	return slices.IndexFunc(i.flags, func(f string) bool { return strings.HasPrefix(f, "--route "+prefix+":") })
}

// addDomain returns the domain with a name, which it adds if it is missing.
func (i *Imported) addDomain(name string) *domain {
	if d := i.findDomain(name); d != nil {
		return d
	}
	i.domains = append(i.domains, &domain{name: name})
	return i.domains[len(i.domains)-1]
}

// findDomain returns the domain with a name, or nil.
func (i *Imported) findDomain(name string) *domain {
	for _, d := range i.domains {
		if d.name == name {
			return d
		}
	}
	return nil
}

// Rules returns the rules of a domain as YAML, which the parser of rules has accepted. name may be
// empty if there is only one domain.
func (i *Imported) Rules(name string) ([]byte, error) {
	var names []string
	for _, d := range i.domains {
		names = append(names, d.name)
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%s: no limit to import", i.name)
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("%s has several domains, and a file of rules has one: set --domain to one of %s", i.name,
			strings.Join(names, ", "))
	case name == "":
		name = names[0]
	}
	d := i.findDomain(name)
	if d == nil {
		return nil, fmt.Errorf("%s has no domain %s: set --domain to one of %s", i.name, name, strings.Join(names, ", "))
	}
	if len(d.rules.Children) == 0 {
		return nil, fmt.Errorf("%s: no limit of the domain %s can be imported", i.name, d.name)
	}
	if budget := maxNodes; i.additive {
		if complete(&d.rules, &budget); budget < 0 {
			return nil, fmt.Errorf("%s: the rules would have more than %d descriptors", i.name, maxNodes)
		}
	}
	text := i.write(d)
	if _, err := rulesfile.Parse(rulesfile.File{Name: "the imported rules", Data: text}); err != nil {
		return nil, fmt.Errorf("%s: %w", i.name, err)
	}
	return text, nil
}

// addLimit adds a limit to a descriptor. Of two limits with one window, the smaller decides. If
// neither is the smaller one in all its numbers, addLimit returns false and changes nothing.
func addLimit(to *rulesyaml.Draft, l rulesyaml.DraftLimit) bool {
	for i := range to.Limits {
		have := &to.Limits[i]
		if have.Algorithm == l.Algorithm && have.Unit == l.Unit && have.UnitMultiplier == l.UnitMultiplier && have.WindowStart == l.WindowStart {
			switch {
			case isWithin(have, &l):
				return true
			case isWithin(&l, have):
				*have = l
				return true
			}
			return false
		}
	}
	to.Limits = append(to.Limits, l)
	return true
}

// isWithin reports whether a limit admits no more than another one with the same window.
func isWithin(a, b *rulesyaml.DraftLimit) bool {
	return a.RequestsPerUnit <= b.RequestsPerUnit && a.Capacity <= b.Capacity && a.ConcurrentRequests <= b.ConcurrentRequests
}

// complete repeats the limits of a key without a value below every value of the key, because a
// value hides the key without one. It stops when budget, the number of descriptors that it may
// still visit, is below 0.
func complete(d *rulesyaml.Draft, budget *int) {
	*budget -= len(d.Children)
	if *budget < 0 {
		return
	}
	for _, general := range d.Children {
		if general.Spec.Value != "" || isList(general) {
			continue
		}
		for _, special := range d.Children {
			if special != general && special.Spec.Key == general.Spec.Key && !isList(special) {
				merge(special, general, budget)
			}
		}
	}
	for _, b := range d.Children {
		complete(b, budget)
	}
}

func isList(d *rulesyaml.Draft) bool { return len(d.Spec.Values)+len(d.Spec.Prefixes) > 0 }

// merge adds copies of the limits and descriptors of another descriptor.
func merge(to, other *rulesyaml.Draft, budget *int) {
	*budget -= 1 + len(other.Children)
	if *budget < 0 {
		return
	}
	for _, l := range other.Limits {
		addLimit(to, l)
	}
	for _, b := range other.Children {
		merge(to.At([]descriptors.NodeSpec{b.Spec}), b, budget)
	}
}

// write returns the rules of a domain as YAML.
func (i *Imported) write(d *domain) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Imported from %s by weir import.\n", comment(i.name))
	if len(i.flags) > 0 {
		fmt.Fprintf(&b, "# To write Envoy's configuration: weir gen envoy --config FILE --upstream HOST:PORT")
		for _, f := range i.flags {
			fmt.Fprintf(&b, " \\\n#   %s", comment(f))
		}
		b.WriteString("\n")
	}
	b.Write(d.rules.YAML(d.name, d.onStoreError))
	return b.Bytes()
}

// comment returns a text as a comment on one line.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff {
			return ' '
		}
		return r
	}, text)
}

// windowOf returns a window of a number of seconds in the longest unit that divides it.
func windowOf(seconds int64) (unit string, multiplier int64) {
	for u := descriptors.Week; u > descriptors.Second; u-- {
		if length := int64(u.Duration().Seconds()); seconds%length == 0 {
			return u.String(), seconds / length
		}
	}
	return descriptors.Second.String(), seconds
}

// uncounted is the count_denied of limiters that do not count denied requests.
var uncounted = new(bool)

// The largest numbers that rules may have.
const (
	maxRequests = 1<<52 - 1
	maxSeconds  = 10 * 365 * 86400
	maxSlots    = 10_000
)
