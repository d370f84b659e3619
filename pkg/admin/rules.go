package admin

import (
	"context"
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
)

type rulesInput struct {
	Domain string `query:"domain" maxLength:"4096" doc:"Only the rules of this domain."`
	Limit  int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"How many rules to return at most."`
	Offset int    `query:"offset" minimum:"0" default:"0" doc:"How many rules to skip."`
}

type rulesOutput struct {
	Total int        `header:"X-Total-Count" doc:"How many rules there are in all."`
	Body  []api.Rule `nullable:"false"`
}

func (a *API) rules(_ context.Context, in *rulesInput) (*rulesOutput, error) {
	rules := a.options.Rules()
	if in.Domain != "" {
		if _, err := requireDomain(rules, in.Domain); err != nil {
			return nil, err
		}
	}
	rates, out := a.rates.ofRules(rules), &rulesOutput{Body: []api.Rule{}}
	i := -1
	for rule := range rules.All() {
		i++
		if in.Domain != "" && rule.Domain != in.Domain {
			continue
		}
		out.Total++
		if out.Total <= in.Offset || len(out.Body) >= in.Limit {
			continue
		}
		shown := a.ruleOf(rule)
		shown.AllowedPerSecond, shown.DeniedPerSecond = rates[i].allowed, rates[i].denied
		out.Body = append(out.Body, shown)
	}
	return out, nil
}

func (a *API) ruleOf(rule *descriptors.Rule) api.Rule {
	shown := api.Rule{Domain: rule.Domain, Path: rule.Name, Source: rule.Source(), Unlimited: rule.Unlimited, Mode: a.modeOf(rule),
		Limits: []api.RuleLimit{}}
	for i := range rule.Limits {
		shown.Limits = append(shown.Limits, limitOf(&rule.Limits[i]))
	}
	return shown
}

// modeOf returns the mode in which the server applies a rule: SHADOW_MODE and QUOTA_MODE hold for
// every rule with a limit.
func (a *API) modeOf(rule *descriptors.Rule) string {
	switch decide := &a.options.Decide; {
	case rule.Unlimited:
		return rule.Mode()
	case decide.ShadowMode:
		return "shadow"
	case decide.QuotaMode && !rule.ShadowMode:
		return "quota"
	}
	return rule.Mode()
}

func limitOf(l *descriptors.RateLimit) api.RuleLimit {
	spec := l.Spec()
	shown := api.RuleLimit{
		Name: l.Name, Algorithm: spec.Algorithm, RequestsPerUnit: l.RequestsPerUnit, Window: l.Window().String(),
		Params: spec.Params.String(),
	}
	if l.Window() > 0 {
		shown.Unit, shown.UnitMultiplier = l.Unit.String(), l.UnitMultiplier
	}
	return shown
}

// requireDomain returns a domain of rules. If the rules do not have it, the error names the nearest
// domain.
func requireDomain(rules *descriptors.Rules, name string) (*descriptors.Domain, error) {
	if rules == nil {
		return nil, errNoRules
	}
	if domain := rules.Domain(name); domain != nil {
		return domain, nil
	}
	remedy := "the rules are empty"
	if names := explain.DomainNames(rules); names != "" {
		remedy = "the domains are " + names
	}
	if nearest := explain.NearestDomain(rules, name); nearest != "" {
		remedy = fmt.Sprintf("did you mean %q?", nearest)
	}
	return nil, huma.Error404NotFound(fmt.Sprintf("no rules have the domain %q: %s", name, remedy))
}

// maxSuggestedKeys bounds the keys that a misspelled one is compared with.
const maxSuggestedKeys = 1000

// keyHint returns a sentence about the first key of the descriptor that probably misspells the key
// of a rule; "" if there is none.
func keyHint(rules *descriptors.Rules, in *api.KeyRequest) string {
	known := map[string]bool{}
	var keys []string
	for rule := range rules.All() {
		if rule.Domain != in.Domain || len(keys) >= maxSuggestedKeys {
			continue
		}
		for _, node := range rule.Path() {
			if !known[node.Key] {
				known[node.Key] = true
				keys = append(keys, node.Key)
			}
		}
	}
	for _, e := range in.Descriptor {
		if nearest := spelling.Nearest(e[0], keys); nearest != "" && !known[e[0]] {
			return fmt.Sprintf("no rule of the domain has the key %q: did you mean %q?", e[0], nearest)
		}
	}
	return ""
}
