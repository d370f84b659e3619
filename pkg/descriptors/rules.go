package descriptors

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/weir-rls/weir/pkg/limiters"
)

// Rules are an immutable set of rules. Nil and the zero value are empty.
type Rules struct {
	domains map[string]*Domain
	table   *ruleTable // the rules in file order
	version string
}

// A Domain holds the rules of one domain. It is immutable. Nil is a domain without rules.
type Domain struct {
	name          string
	index         *ruleIndex
	rules         *Rules       // the rules of all domains
	empty         [][]pathNode // the paths to nodes that are IsEmpty, for tree
	defaults      Defaults
	onStoreErrors []limiters.OnStoreError // see OnStoreErrors
}

// Defaults apply to the limits of a domain that do not set them.
type Defaults struct {
	OnStoreError limiters.OnStoreError // OnStoreErrorUnset: OnStoreErrorFail
	OnDeny       *OnDeny               // nil: the proxy chooses the response
}

// Domain returns a domain by name; nil if it does not exist.
func (r *Rules) Domain(name string) *Domain {
	if r == nil {
		return nil
	}
	return r.domains[name]
}

// Name returns the domain's name, which does not share memory with a request.
func (d *Domain) Name() string { return d.name }

// OnStoreError returns the on_store_error that applies to a limit of the domain: the limit's, else
// the domain's, else [limiters.OnStoreErrorFail].
func (d *Domain) OnStoreError(l *RateLimit) limiters.OnStoreError {
	return cmp.Or(l.OnStoreError, d.defaults.OnStoreError, limiters.OnStoreErrorFail)
}

// OnDeny returns the default response to a denied request; it may be nil.
func (d *Domain) OnDeny() *OnDeny {
	if d == nil {
		return nil
	}
	return d.defaults.OnDeny
}

// OnStoreErrors returns the distinct values of on_store_error of all limits of the domain, sorted.
// It is empty if the domain has no limits.
func (d *Domain) OnStoreErrors() []limiters.OnStoreError { return slices.Clone(d.onStoreErrors) }

// collectOnStoreErrors computes OnStoreErrors of all domains.
func (r *Rules) collectOnStoreErrors() {
	for rule := range r.All() {
		d := r.domains[rule.Domain]
		for i := range rule.Limits {
			if onStoreError := d.OnStoreError(&rule.Limits[i]); !slices.Contains(d.onStoreErrors, onStoreError) {
				d.onStoreErrors = append(d.onStoreErrors, onStoreError)
			}
		}
	}
	for _, d := range r.domains {
		slices.Sort(d.onStoreErrors)
	}
}

// UsesOnStoreError reports whether a limit has this on_store_error.
func (r *Rules) UsesOnStoreError(onStoreError limiters.OnStoreError) bool {
	for d := range r.Domains() {
		if slices.Contains(d.onStoreErrors, onStoreError) {
			return true
		}
	}
	return false
}

// UsesLeases reports whether a limit has leases.
func (r *Rules) UsesLeases() bool {
	for rule := range r.All() {
		if rule.hasLeases {
			return true
		}
	}
	return false
}

// Match calls [Domain.Match] on the named domain.
func (r *Rules) Match(domain string, entries []Entry) *Rule { return r.Domain(domain).Match(entries) }

// Match returns the rule for entries, which may be unlimited; nil if the last entry reaches no
// rule. It does not allocate. Each entry selects the first of these nodes at its level, and Match
// never tries another one:
//
//  1. [Exact] or [Values], or a wildcard whose own text is the entry
//  2. [Prefixes], with the longest prefix that contains the address
//  3. [Wildcard], the first in the file that matches
//  4. [KeyOnly]
func (d *Domain) Match(entries []Entry) *Rule {
	if d == nil {
		return nil
	}
	return d.index.find(entries)
}

// Domains returns the domains, sorted by name.
func (r *Rules) Domains() iter.Seq[*Domain] {
	return func(yield func(*Domain) bool) {
		for _, name := range r.DomainNames() {
			if !yield(r.domains[name]) {
				return
			}
		}
	}
}

// DomainNames returns the names of the domains, sorted.
func (r *Rules) DomainNames() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.domains))
}

// All returns all rules in file order, including unlimited ones.
func (r *Rules) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		_, n := r.Counts()
		for number := range uint32(n) {
			if !yield(r.table.get(number + 1)) {
				return
			}
		}
	}
}

// ByID returns the rules of each id. It has an id without rules for each domain: that of limits in
// requests that no rule matches.
func (r *Rules) ByID() map[RuleID][]*Rule {
	byID := map[RuleID][]*Rule{}
	for d := range r.Domains() {
		byID[RuleID{Domain: d.Name()}] = nil
	}
	for rule := range r.All() {
		byID[rule.ID()] = append(byID[rule.ID()], rule)
	}
	return byID
}

// Counts returns the number of domains and of rules.
func (r *Rules) Counts() (domains, rules int) {
	if r == nil || r.table == nil {
		return 0, 0
	}
	return len(r.domains), int(r.table.n)
}
