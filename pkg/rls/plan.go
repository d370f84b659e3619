package rls

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// planned is what a request comes to: the hits of all its descriptors, which one call of the store decides.
type planned struct {
	domainNotFound bool
	matches        []match
	hits           []limiters.Hit
	groups         []limiters.Group // slices of hits
	verdicts       []limiters.Verdict
	key            []byte // the last one
}

// A match is the limits that a descriptor is under, none for one that nothing limits. Its hits are those from first on.
type match struct {
	rule      *descriptors.Rule
	override  bool
	unlimited bool
	limits    []descriptors.RateLimit
	own       [1]descriptors.RateLimit // limits, where the request brought it along
	first     int
}

// inShadow tells whether a denial is told as OK. An override has no modes.
func (m *match) inShadow() bool { return m.rule != nil && m.rule.ShadowMode && !m.override }

func (m *match) inQuota() bool {
	return m.rule != nil && m.rule.QuotaMode && !m.override && len(m.limits) > 0
}

func (m *match) appendKey(dst []byte, domain string, entries []descriptors.Entry) []byte {
	if m.override {
		return descriptors.AppendOverrideKey(dst, domain, m.rule, entries)
	}
	return descriptors.AppendKey(dst, domain, m.rule, entries)
}

// denies tells whether a denial of one of m's limits denies the request, whatever the others say.
func (p *planned) denies(m *match, o *Options) bool {
	return !o.ShadowMode && !o.QuotaMode && !m.inShadow() && (!m.inQuota() || p.quotas() == 1)
}

// quotas are how many descriptors are under rules in quota mode, all of which have to be over.
func (p *planned) quotas() (n int) {
	for i := range p.matches {
		if m := &p.matches[i]; m.inQuota() && !m.unlimited {
			n++
		}
	}
	return n
}

// plan matches each descriptor to its limits. A domain without rules limits nothing, overrides included. The error is for the client to read.
func (p *planned) plan(s *Service, rules *descriptors.Rules, asked *asking) error {
	p.matches = zeroes(p.matches, len(asked.descriptors))
	domain := rules.Domain(asked.domain)
	if domain == nil {
		p.domainNotFound = true
		return nil
	}
	asked.domain = domain.Name()
	replaces := false
	for i := range asked.descriptors {
		m := &p.matches[i]
		if err := m.match(s, domain, &asked.descriptors[i]); err != nil {
			return fmt.Errorf("descriptors[%d]: limit: %w", i, err)
		}
		replaces = replaces || m.replaces()
	}
	if replaces {
		dropReplaced(p.matches)
	}
	count := 0
	for i := range p.matches {
		if count += len(p.matches[i].limits); count > maxLimits {
			return fmt.Errorf("descriptors[%d]: the descriptors are under more than %d limits together", i, maxLimits)
		}
	}
	p.hits = slices.Grow(p.hits, count) // so that it does not move below the groups
	p.addGroups(asked, domain, &s.options)
	p.verdicts = zeroes(p.verdicts, len(p.hits))
	return nil
}

// addGroups adds the hits of each match. The limits of one descriptor are a group: none is charged unless all allow. With
// AllOrNothing there is one more group, of all matches that can deny the request by themselves. A rule in shadow mode is no
// part of it: while it is over its limit, it would let every request pass and keep the other limits from being charged.
func (p *planned) addGroups(asked *asking, domain *descriptors.Domain, o *Options) {
	together := false
	for i := range p.matches {
		switch m := &p.matches[i]; {
		case len(m.limits) == 0:
		case !o.AllOrNothing || !p.denies(m, o):
			p.endGroup(p.addHits(i, asked, domain))
		case !together:
			together = true
			first := len(p.hits)
			for j := i; j < len(p.matches); j++ {
				if m := &p.matches[j]; len(m.limits) > 0 && p.denies(m, o) {
					p.addHits(j, asked, domain)
				}
			}
			p.endGroup(first)
		}
	}
}

// addHits adds the hits of match i, and returns the index of the first.
func (p *planned) addHits(i int, asked *asking, domain *descriptors.Domain) int {
	d, m := &asked.descriptors[i], &p.matches[i]
	m.first = len(p.hits)
	p.key = m.appendKey(p.key[:0], asked.domain, d.entries)
	key := string(p.key)
	for j := range m.limits {
		l := &m.limits[j]
		p.hits = append(p.hits, limiters.Hit{Key: key, Limit: l.Limit, N: d.hits, OnError: cmp.Or(l.OnError, domain.OnError())})
	}
	return m.first
}

// endGroup makes a group of the hits from first on.
func (p *planned) endGroup(first int) {
	p.groups = append(p.groups, p.hits[first:len(p.hits):len(p.hits)])
}

// zeroes is a slice of n of them, in the room of s if it is enough: past the end of s there are none but zeroes.
func zeroes[T any](s []T, n int) []T {
	if n > cap(s) {
		return make([]T, n)
	}
	return s[:n]
}

func (m *match) match(s *Service, domain *descriptors.Domain, d *descriptor) error {
	if len(d.entries) == 0 {
		// Envoy sends such when all actions of a descriptor were skipped.
		return nil
	}
	m.rule = domain.Match(d.entries)
	if d.limited {
		limit, err := s.overrides.limit(m.rule, d.override)
		m.override, m.own[0] = true, limit
		m.limits = m.own[:]
		return err
	}
	if m.rule != nil {
		m.unlimited, m.limits = m.rule.Unlimited, m.rule.Limits
	}
	return nil
}

func (m *match) replaces() bool { return m.rule != nil && !m.override && m.rule.IsReplacing() }

// dropReplaced drops the limits of rules that a matched rule replaces by name, whether or not it is replaced itself. An
// unlimited rule replaces others and is not replaced.
func dropReplaced(matches []match) {
	var names []string
	for i := range matches {
		if m := &matches[i]; m.replaces() {
			names = append(names, m.rule.Replaces...)
		}
	}
	for i := range matches {
		m := &matches[i]
		if m.rule != nil && !m.override && !m.unlimited && slices.ContainsFunc(names, m.rule.HasName) {
			m.limits = nil
		}
	}
}

// of are the verdicts of a match, one for each of its limits.
func (p *planned) of(m *match) []limiters.Verdict { return p.verdicts[m.first : m.first+len(m.limits)] }

// fail says of every hit that the store could not decide it.
func (p *planned) fail(err error) {
	for i := range p.verdicts {
		p.verdicts[i] = limiters.Verdict{Err: err}
	}
}

// decisions appends to made what was decided.
func (p *planned) decisions(made []Decision, asked *asking) []Decision {
	for i := range p.matches {
		m, d := &p.matches[i], &asked.descriptors[i]
		for j, v := range p.of(m) {
			made = append(made, Decision{
				Domain: asked.domain, Rule: m.rule, Entries: d.entries, Override: m.override,
				Limit: m.limits[j], Hits: d.hits, Shadowed: m.inShadow(), Verdict: v,
			})
		}
	}
	return made
}

// unmatched appends to found the entries of descriptors that no rule limits.
func (p *planned) unmatched(found [][]descriptors.Entry, asked *asking) [][]descriptors.Entry {
	if p.domainNotFound {
		return found
	}
	for i := range p.matches {
		if d := &asked.descriptors[i]; len(d.entries) > 0 && p.matches[i].rule == nil && !p.matches[i].override {
			found = append(found, d.entries)
		}
	}
	return found
}

// clear forgets what was planned, and keeps the room for it.
func (p *planned) clear() {
	clear(p.matches)
	clear(p.hits)
	clear(p.groups)
	clear(p.verdicts)
	*p = planned{matches: p.matches[:0], hits: p.hits[:0], groups: p.groups[:0], verdicts: p.verdicts[:0], key: p.key[:0]}
}
