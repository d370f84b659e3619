// Package explain reports which limits a request is under, and why. It charges nothing and needs no
// store.
//
//	explanation := explain.ForRequest(explain.Options{}, rules, &request)
//	fmt.Print(explanation.Text(false))
//
// The rule, the limits and the result come from [decide.Planner], which plans live requests too. So
// a server with the same rules and settings decides as the explanation reports. The steps come from
// [descriptors.Walker.Walk], which tests compare with the matching of live requests. The JSON of an
// [Explanation] is a contract: fields may be added, but not renamed.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// An Explanation explains a request.
type Explanation struct {
	Domain        string       `json:"domain" doc:"The domain of the request."`
	DomainKnown   bool         `json:"domain_known" doc:"Whether rules have the domain. Without rules, nothing is limited."`
	NearestDomain string       `json:"nearest_domain,omitempty" doc:"If the domain is unknown: the most similar domain of the rules."`
	RulesVersion  string       `json:"rules_version" doc:"The version of the rules: equal on all replicas with the same rules."`
	Error         string       `json:"error,omitempty" doc:"Why a server rejects the request. The explanation then has no descriptors."`
	Envoy         *Envoy       `json:"envoy,omitempty" doc:"How Envoy makes the descriptors, with --envoy."`
	Descriptors   []Descriptor `json:"descriptors" nullable:"false" doc:"One explanation for each descriptor of the request."`
}

// A Descriptor explains one descriptor of a request.
type Descriptor struct {
	Entries   []Entry `json:"entries" nullable:"false" doc:"The entries of the descriptor, in order."`
	Hits      int64   `json:"hits" doc:"The hits that the request charges: 0 peeks, a number below 0 refunds."`
	Matched   bool    `json:"matched" doc:"Whether a rule with limits or unlimited matches the descriptor."`
	Result    string  `json:"result" enum:"limited,unlimited,replaced,no_rule,no_entries,unknown_domain,bad_lease_id,released,settled" doc:"The result in one word."`
	Rule      string  `json:"rule,omitempty" doc:"The path of the matching rule, as metrics and logs name it."`
	Source    string  `json:"source,omitempty" doc:"The file and line of the matching rule, or the name of its xDS resource."`
	Limits    []Limit `json:"limits" nullable:"false" doc:"The limits that the descriptor is under. If one denies a request, the others are not charged."`
	Unlimited bool    `json:"unlimited" doc:"Whether the matching rule is unlimited."`
	Reason    string  `json:"reason" doc:"The reason for the result, as a clause."`
	Summary   string  `json:"summary" doc:"The walk and the result in one line."`
	Walk      []Step  `json:"walk" nullable:"false" doc:"One step for each entry, up to the first that selects nothing."`

	key     string
	planned []descriptors.RateLimit // in the order of Limits
}

// Planned returns the key and the limits of a descriptor of [ForRequest], in the order of d.Limits,
// for a caller that sets their State.
func (d *Descriptor) Planned() (key string, limits []descriptors.RateLimit) { return d.key, d.planned }

// An Entry is a key and a value.
type Entry [2]string

// A Step explains one entry.
type Step struct {
	Level      int     `json:"level" doc:"The position of the entry, from 1."`
	Entry      Entry   `json:"entry" doc:"The entry of the request."`
	Result     string  `json:"result" enum:"matched,no_match" doc:"Whether the entry selects a rule."`
	Kind       string  `json:"kind" enum:"value,list,prefix,wildcard,key,marker,no_child,no_key,no_value,no_wildcard,no_prefix,no_address" doc:"How the entry selects a rule, or why it selects none."`
	Descriptor string  `json:"descriptor,omitempty" doc:"The selected rule, such as path=/a*."`
	Reason     string  `json:"reason" doc:"The reason as a clause."`
	Source     string  `json:"source" doc:"The file and line of the selected rule, or the name of its xDS resource. Empty if there is none."`
	Hides      *Hidden `json:"hides,omitempty" doc:"A more general rule that this selection hides."`

	brief string
}

// Hidden is a more general rule that would have led to a match, if a step had not selected another.
type Hidden struct {
	Descriptor string `json:"descriptor" doc:"The more general rule."`
	Source     string `json:"source" doc:"Its file and line."`
	Rule       string `json:"rule" doc:"The path of the rule that would have matched."`
	RuleSource string `json:"rule_source" doc:"The file and line of that rule."`
}

// Options configures [ForRequest] and [ForEnvoy]. The zero value is the default configuration.
type Options struct {
	// Decide holds the settings of the server.
	Decide decide.Options
	// KeyHashSecret, if not empty, replaces keys by their [descriptors.KeyHash].
	KeyHashSecret []byte
}

// ForRequest explains a request under rules. Nil rules have no domain.
func ForRequest(o Options, rules *descriptors.Rules, request *decide.Request) *Explanation {
	if rules == nil {
		rules = &descriptors.Rules{}
	}
	explanation, domain := newExplanation(rules, request.Domain)
	var planned decide.PlannedRequest
	err := decide.NewPlanner(func() *descriptors.Rules { return rules }, o.Decide).Plan(request, &planned)
	if err != nil {
		explanation.Error = err.Error()
		return explanation
	}
	e := explainer{options: o, rules: rules, domain: domain, walker: domain.Walker(), plans: planned.Plans}
	for i := range planned.Plans {
		d := e.descriptor(i)
		d.Entries = EntriesOf(request.Descriptors[i].Entries)
		noLimit := e.walk(&d, i, request.Descriptors[i].Entries)
		d.Reason = e.reason(&d, i, noLimit, explanation)
		d.Summary = d.summary()
		explanation.Descriptors = append(explanation.Descriptors, d)
	}
	return explanation
}

// newExplanation returns an explanation without descriptors. The domain is nil if no rules have it.
func newExplanation(rules *descriptors.Rules, name string) (*Explanation, *descriptors.Domain) {
	domain := rules.Domain(name)
	explanation := &Explanation{Domain: name, DomainKnown: domain != nil, RulesVersion: rules.Version(), Descriptors: []Descriptor{}}
	if domain == nil {
		explanation.NearestDomain = NearestDomain(rules, name)
	}
	return explanation, domain
}

// NearestDomain returns the domain that a name probably misspells, or "".
func NearestDomain(rules *descriptors.Rules, name string) string {
	const maximum = 1000
	names := rules.DomainNames()
	return spelling.Nearest(name, names[:min(len(names), maximum)])
}

// Covered reports whether the request reaches the rules as intended: each descriptor has a limit,
// or is unlimited, is replaced by another rule, or ends a lease. If Envoy makes the descriptors,
// each must be known, and there must be one.
func (e *Explanation) Covered() bool {
	return e.Error == "" && e.Envoy.covered() && !slices.ContainsFunc(e.Descriptors, func(d Descriptor) bool { return !d.covered() })
}

func (d *Descriptor) covered() bool {
	return len(d.Limits) > 0 || d.Result == limited || d.Unlimited || slices.Contains([]string{
		decide.Replaced.String(), decide.Released.String(), decide.Settled.String(),
	}, d.Result)
}

// Err returns an error with the text of e.Error, or nil.
func (e *Explanation) Err() error {
	if e.Error == "" {
		return nil
	}
	return errors.New(e.Error)
}

// An explainer explains the descriptors of a request from its plan.
type explainer struct {
	options Options
	rules   *descriptors.Rules
	domain  *descriptors.Domain // nil: unknown
	walker  descriptors.Walker
	plans   []decide.Plan
}

// descriptor explains descriptor i. It leaves out the entries, the walk and the reason.
func (e *explainer) descriptor(i int) Descriptor {
	planned := &e.plans[i]
	d := Descriptor{
		Hits: planned.Hits, Matched: planned.Rule != nil, Rule: planned.RuleName(), Source: planned.Rule.Source(),
		Limits: []Limit{}, Unlimited: planned.Unlimited(), Result: planned.PlannedReason.String(),
		key: planned.Key, planned: planned.Limits,
	}
	for j := range planned.Limits {
		d.Limits = append(d.Limits, e.limit(planned, j))
	}
	if planned.PlannedReason == decide.WithinLimit {
		d.Result = limited
	}
	return d
}

const (
	limited       = "limited"
	limitedReason = "the rule limits the request"
	matched       = "matched"
	noMatch       = "no_match"
)

// walk sets the steps of descriptor i. If every entry selects a node and the last node has no
// limit, noLimit is the reason for that. The marker that ends a lease is not an entry of the rules,
// and has a step of its own.
func (e *explainer) walk(d *Descriptor, i int, sent []descriptors.Entry) (noLimit string) {
	d.Walk = []Step{}
	planned := e.plans[i].Entries
	for _, s := range e.walker.Walk(planned) {
		step := Step{
			Level: s.Position, Entry: Entry{s.Entry.Key, s.Entry.Value}, Result: noMatch, Kind: s.Result.String(),
			Descriptor: s.Node, Source: s.Source,
		}
		step.Reason, step.brief = stepReason(&s)
		if s.Result.Matched() {
			step.Result = matched
		}
		if h := s.Hides; h != nil {
			step.Hides = &Hidden{h.Node, h.Source, h.Rule.Name, h.Rule.Source()}
		}
		d.Walk = append(d.Walk, step)
		if s.Result.Matched() && s.Rule == nil && s.Position == len(planned) {
			noLimit = whyNoLimit(&s)
		}
	}
	if e.domain != nil && len(planned) < len(sent) {
		marker := sent[len(planned)]
		d.Walk = append(d.Walk, Step{
			Level: len(sent), Entry: Entry{marker.Key, marker.Value}, Result: matched, Kind: "marker", Descriptor: marker.Key,
			Reason: "directly after the id of a lease, it ends the lease",
		})
	}
	return noLimit
}

// reason returns the reason for the result of descriptor i. noLimit is the result of walk.
func (e *explainer) reason(d *Descriptor, i int, noLimit string, explanation *Explanation) string {
	planned := &e.plans[i]
	switch planned.PlannedReason {
	case decide.WithinLimit:
		return e.whyLimited(planned)
	case decide.NoEntries:
		return "the descriptor has no entries, as if Envoy skipped all actions"
	case decide.UnknownDomain:
		return whyUnknownDomain(e.rules, explanation)
	case decide.Unlimited:
		return "the rule is unlimited"
	case decide.Replaced:
		return e.whyReplaced(i)
	case decide.BadLeaseID:
		return fmt.Sprintf("the id of the lease must have 1 to %d bytes", decide.MaxLeaseIDBytes)
	case decide.Released:
		return "the descriptor ends a lease or a reservation, and charges nothing"
	case decide.Settled:
		return "the descriptor settles a reservation to its actual cost"
	}
	reason := cmp.Or(noLimit, d.Walk[len(d.Walk)-1].Reason)
	for _, s := range d.Walk {
		if h := s.Hides; h != nil {
			reason += fmt.Sprintf("; %s hides %s", located(s.Descriptor, s.Source), located(h.Rule, h.RuleSource))
		}
	}
	return reason
}

// whyLimited returns the reason for a limited descriptor.
func (e *explainer) whyLimited(planned *decide.Plan) string {
	switch {
	case len(planned.Limits) == 0:
		return "a refund of 0 hits changes nothing, and is never denied"
	case planned.HasOverride:
		return "the limit came with the request, and replaces the limits of a matching rule"
	case e.options.Decide.ShadowMode:
		return "the server is in shadow mode: it counts, reports and allows"
	case planned.ShadowMode:
		return "the rule is in shadow mode: it counts, reports and allows"
	case planned.QuotaMode:
		return "the rule is in quota mode: it denies the request only if every rule in quota mode denies it"
	}
	return limitedReason
}

// whyUnknownDomain returns the reason for a domain without rules. It names the nearest domain and
// the first ones.
func whyUnknownDomain(rules *descriptors.Rules, e *Explanation) string {
	reason := "no rules have the domain " + shown(e.Domain)
	domains, _ := rules.Counts()
	switch {
	case domains == 0:
		return reason + "; the rules are empty"
	case domains == 1 && e.NearestDomain != "":
		return reason + "; did you mean " + shown(e.NearestDomain) + "?"
	case domains == 1:
		return reason + "; the only domain is " + DomainNames(rules)
	case e.NearestDomain != "":
		return reason + "; did you mean " + shown(e.NearestDomain) + "? The domains are " + DomainNames(rules)
	}
	return reason + "; the domains are " + DomainNames(rules)
}

// DomainNames returns the names of the first domains of rules, such as shop, ugc and 3 more. It
// returns "" for no rules.
func DomainNames(rules *descriptors.Rules) string {
	const most = 5
	names, more := rules.DomainNames(), ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	for i, name := range names {
		names[i] = shown(name)
	}
	return strings.Join(names, ", ") + more
}

// whyReplaced returns the reason for descriptor i, whose rule another descriptor replaces.
func (e *explainer) whyReplaced(i int) string {
	replaced := e.plans[i].Rule
	for j := range e.plans {
		p := &e.plans[j]
		if !p.UsesRule() {
			continue
		}
		for _, name := range p.Rule.Replaces {
			if replaced.HasLimitNamed(name) {
				return fmt.Sprintf("descriptor %d replaces the limit %s: its rule %s says so", j+1, shown(name), located(p.Rule.Name, p.Rule.Source()))
			}
		}
	}
	return "another descriptor of the request replaces the limit"
}

// EntriesOf converts entries. The result is not nil.
func EntriesOf(all []descriptors.Entry) []Entry {
	entries := make([]Entry, len(all))
	for i, e := range all {
		entries[i] = Entry{e.Key, e.Value}
	}
	return entries
}
