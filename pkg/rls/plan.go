package rls

import (
	"fmt"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// planned is what a request comes to: the hits of all its descriptors, which one call of the store decides.
type planned struct {
	err      error // what the request asks for cannot be
	matches  []match
	hits     []limiters.Hit
	verdicts []limiters.Verdict
}

// A match is the limits that a descriptor is under, none for one that no rule limits. Its hits are those from first on.
type match struct {
	rule   *descriptors.Rule
	limits []descriptors.RateLimit
	first  int
}

// name is the name of the rule, "" for an override that no rule matches.
func (m *match) name() string {
	if m.rule == nil {
		return ""
	}
	return m.rule.Name
}

// plan matches each descriptor to its limits. Several limits of one descriptor are a group: none is charged unless all
// allow. A domain without rules limits nothing, overrides included.
func (s *Service) plan(asked asking) planned {
	rules := s.rules()
	p := planned{matches: make([]match, len(asked.descriptors))}
	if !rules.HasDomain(asked.domain) {
		return p
	}
	p.hits = make([]limiters.Hit, 0, len(asked.descriptors))
	for i := range asked.descriptors {
		d, m := &asked.descriptors[i], &p.matches[i]
		if len(d.entries) == 0 {
			// Envoy sends such when all actions of a descriptor were skipped.
			continue
		}
		m.rule = rules.Match(asked.domain, d.entries)
		if m.rule != nil {
			m.limits = m.rule.Limits
		}
		if o := d.override; o != nil {
			limit, err := s.overrides.limit(m.rule, *o)
			if err != nil {
				p.err = fmt.Errorf("descriptors[%d]: limit: %w", i, err)
				return p
			}
			m.limits = []descriptors.RateLimit{limit}
		}
		if len(m.limits) == 0 {
			continue
		}
		if m.first = len(p.hits); m.first+len(m.limits) > maxLimits {
			p.err = fmt.Errorf("descriptors[%d]: the descriptors are under more than %d limits together", i, maxLimits)
			return p
		}
		key, group := descriptors.Key(asked.domain, m.rule, d.entries), uint16(0)
		if len(m.limits) > 1 {
			group = uint16(i + 1)
		}
		for j := range m.limits {
			p.hits = append(p.hits, limiters.Hit{Key: key, Limit: m.limits[j].Limit, N: d.hits, Group: group})
		}
	}
	p.verdicts = make([]limiters.Verdict, len(p.hits))
	return p
}

// of are the verdicts of a match, one for each of its limits.
func (p *planned) of(m *match) []limiters.Verdict { return p.verdicts[m.first : m.first+len(m.limits)] }

func (p *planned) decisions(asked asking) []Decision {
	made := make([]Decision, 0, len(p.hits))
	for i := range p.matches {
		m, d := &p.matches[i], &asked.descriptors[i]
		for j, v := range p.of(m) {
			made = append(made, Decision{
				Domain: asked.domain, Rule: m.rule, Entries: d.entries, Override: d.override != nil,
				Limit: m.limits[j], Hits: d.hits, Verdict: v,
			})
		}
	}
	return made
}
