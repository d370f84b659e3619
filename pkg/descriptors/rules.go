package descriptors

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Rules are what a set of files says. They do not change and may be shared; nil and the zero value are no rules.
type Rules struct {
	domains map[string]*Domain
	chunks  *chunks // of the rules, in file order
}

// A Domain is what the files say of one domain. It does not change and may be shared; nil is a domain that no file has.
type Domain struct {
	name    string
	index   *index
	onError limiters.OnError
	modes   []limiters.OnError // of its limits
}

// Domain is the domain of that name, nil if no file has it.
func (r *Rules) Domain(name string) *Domain {
	if r == nil {
		return nil
	}
	return r.domains[name]
}

// Name is the name as the rules have it: unlike the text of a request, it is held anyway.
func (d *Domain) Name() string { return d.name }

// OnError is what becomes of a hit that the store cannot decide, where its limit says nothing of it.
func (d *Domain) OnError() limiters.OnError { return d.onError }

// OnErrors are what becomes, when the store cannot decide, of the hits of its limits: each policy once, OnErrorUnsaid
// never, and none if it limits nothing.
func (d *Domain) OnErrors() []limiters.OnError { return slices.Clone(d.modes) }

// noteOnErrors notes the policies of all domains.
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

// Match is [Domain.Match] in the domain of that name.
func (r *Rules) Match(domain string, entries []Entry) *Rule { return r.Domain(domain).Match(entries) }

// Match finds the rule for entries, nil if there is none. At each level an entry takes the descriptor with its key and
// value, else the first in the file whose wildcards fit, else the one with its key and no value; a choice is never
// revised. The rule counts if the last entry reaches it; it may be unlimited. Match allocates nothing.
func (d *Domain) Match(entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	return d.index.find(entries)
}

// Domains gives every domain, in the order of their names.
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

// HasDomain tells whether a file has this domain.
func (r *Rules) HasDomain(domain string) bool {
	return r.Domain(domain) != nil
}

// All gives every rule in the order of the files, unlimited ones too.
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

// Counts tells how many domains there are, and how many rules in them.
func (r *Rules) Counts() (domains, rules int) {
	if r == nil || r.chunks == nil {
		return 0, 0
	}
	return len(r.domains), int(r.chunks.n)
}
