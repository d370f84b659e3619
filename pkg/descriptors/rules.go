package descriptors

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Rules are the rules of a set of files. They do not change and may be shared. Nil and the zero value have no rules.
type Rules struct {
	domains map[string]*Domain
	chunks  *chunks // of the rules, in file order
	version string
}

// A Domain holds the rules of one domain. It does not change and may be shared. Nil is a domain that no file has.
type Domain struct {
	name    string
	index   *index
	onError limiters.OnError
	onDeny  *OnDeny
	modes   []limiters.OnError // see OnErrors
}

// Domain returns the domain of a name, or nil if no file has it.
func (r *Rules) Domain(name string) *Domain {
	if r == nil {
		return nil
	}
	return r.domains[name]
}

// Name returns the name as the rules have it. Keeping it keeps no memory of a request.
func (d *Domain) Name() string { return d.name }

// OnError returns the policy for a hit that the store cannot decide, if its limit has none.
func (d *Domain) OnError() limiters.OnError { return d.onError }

// OnDeny returns the response to a denied request, if its limit has none. It may be nil.
func (d *Domain) OnDeny() *OnDeny {
	if d == nil {
		return nil
	}
	return d.onDeny
}

// OnErrors returns the policies of all limits of the domain, sorted, each once. It returns none if the domain limits nothing.
func (d *Domain) OnErrors() []limiters.OnError { return slices.Clone(d.modes) }

// noteOnErrors collects the policies of all domains for OnErrors.
func (r *Rules) noteOnErrors() {
	for rule := range r.All() {
		d := r.domains[rule.Domain]
		for i := range rule.Limits {
			policy := cmp.Or(rule.Limits[i].OnError, d.onError, limiters.OnErrorFail)
			if !slices.Contains(d.modes, policy) {
				d.modes = append(d.modes, policy)
			}
		}
	}
	for _, d := range r.domains {
		slices.Sort(d.modes)
	}
}

// Match is [Domain.Match] in the domain of a name.
func (r *Rules) Match(domain string, entries []Entry) *Rule { return r.Domain(domain).Match(entries) }

// Match returns the rule for entries, or nil if there is none. The last entry must reach the rule, which may be unlimited.
// Match does not allocate. Each entry selects one descriptor of its level, and a selection is final:
//
//  1. the descriptor with its key and value, alone or in a list of values
//  2. the descriptor with its key and the longest prefix that contains the address
//  3. the first in the file whose wildcards match
//  4. the descriptor with its key and no value
func (d *Domain) Match(entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	return d.index.find(entries)
}

// Domains returns every domain, sorted by name.
func (r *Rules) Domains() iter.Seq[*Domain] {
	if r == nil {
		r = &Rules{}
	}
	names := slices.Sorted(maps.Keys(r.domains))
	return func(yield func(*Domain) bool) {
		for _, name := range names {
			if !yield(r.domains[name]) {
				return
			}
		}
	}
}

// HasDomain reports whether a file has the domain.
func (r *Rules) HasDomain(domain string) bool {
	return r.Domain(domain) != nil
}

// All returns every rule in the order of the files, including unlimited rules.
func (r *Rules) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		_, n := r.Counts()
		for number := range uint32(n) {
			if !yield(r.chunks.at(number + 1)) {
				return
			}
		}
	}
}

// Counts returns the number of domains and of rules.
func (r *Rules) Counts() (domains, rules int) {
	if r == nil || r.chunks == nil {
		return 0, 0
	}
	return len(r.domains), int(r.chunks.n)
}
