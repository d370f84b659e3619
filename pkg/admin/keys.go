package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
)

func entryOf(e explain.Entry) descriptors.Entry { return descriptors.Entry{Key: e[0], Value: e[1]} }

// A target is a rule that limits a descriptor, with the key of its counters.
type target struct {
	rule *descriptors.Rule
	key  string
}

// targetsOf returns the rule that matches a descriptor, and the rules with leases one level below,
// whose last entry is a lease id.
func targetsOf(rules *descriptors.Rules, domain *descriptors.Domain, entries []descriptors.Entry) (all []target) {
	if rule := domain.Match(entries); rule != nil {
		all = append(all, target{rule, descriptors.Key(domain.Name(), rule, entries)})
	}
	for _, key := range leaseKeys(rules, domain.Name()) {
		withLease := append(slices.Clone(entries), descriptors.Entry{Key: key, Value: "id"})
		if rule := domain.Match(withLease); rule != nil && rule.UsesLeases() {
			all = append(all, target{rule, descriptors.Key(domain.Name(), rule, withLease)})
		}
	}
	return all
}

// leaseKeys returns the keys of the lease ids, each once.
func leaseKeys(rules *descriptors.Rules, domain string) (keys []string) {
	for rule := range rules.All() {
		if !rule.UsesLeases() || rule.Domain != domain {
			continue
		}
		nodes := rule.Path()
		if key := nodes[len(nodes)-1].Key; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// findTargets returns the targets of a request, with the rules in force.
func (a *API) findTargets(in *api.KeyRequest) (rules *descriptors.Rules, targets []target, err error) {
	rules = a.options.Rules()
	domain, err := requireDomain(rules, in.Domain)
	if err != nil {
		return nil, nil, err
	}
	entries := make([]descriptors.Entry, len(in.Descriptor))
	for i, e := range in.Descriptor {
		if e[0] == "" {
			return nil, nil, huma.Error422UnprocessableEntity(fmt.Sprintf("descriptor[%d]: the key must not be empty", i))
		}
		entries[i] = entryOf(e)
	}
	return rules, targetsOf(rules, domain, entries), nil
}

const peekPath = "/v1/keys/peek"

func (a *API) inspectKey(ctx context.Context, in *body[api.KeyRequest]) (*body[api.KeyState], error) {
	rules, targets, err := a.findTargets(&in.Body)
	if err != nil {
		return nil, err
	}
	out := &body[api.KeyState]{api.KeyState{
		Domain: in.Body.Domain, Descriptor: in.Body.Descriptor, RulesVersion: rules.Version(), Limits: []api.LimitState{},
	}}
	for _, t := range targets {
		out.Body.Unlimited = out.Body.Unlimited || t.rule.Unlimited
		states, err := a.states(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Body.Limits = append(out.Body.Limits, states...)
	}
	switch {
	case len(out.Body.Limits) > 0:
	case len(targets) == 0:
		out.Body.Reason, out.Body.Hint = decide.NoRule.String(), keyHint(rules, &in.Body)
	default:
		out.Body.Reason = decide.Unlimited.String()
	}
	return out, nil
}

var (
	errStore   = huma.Error503ServiceUnavailable("the store failed: the log of Weir contains the reason")
	errNoRules = huma.Error503ServiceUnavailable("no rules are loaded yet")
)

// storeFailed reports why the store failed, unless the caller has left, and returns the error for
// the caller.
func (a *API) storeFailed(ctx context.Context, route string, reason error) error {
	if !errors.Is(ctx.Err(), context.Canceled) {
		a.options.StoreFailed(route, reason)
	}
	return errStore
}

// states returns the limits of a target with their states. It charges nothing.
func (a *API) states(ctx context.Context, t target) ([]api.LimitState, error) {
	if len(t.rule.Limits) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	verdicts, err := inspect(ctx, a.options.Store, t.key, t.rule.Limits)
	if err != nil {
		return nil, a.storeFailed(ctx, peekPath, err)
	}
	states := make([]api.LimitState, len(verdicts))
	for i, v := range verdicts {
		states[i] = api.LimitState{
			RuleLimit: limitOf(&t.rule.Limits[i]), Rule: t.rule.Name, Source: t.rule.Source(), Mode: a.modeOf(t.rule),
			KeyHash: descriptors.KeyHash(a.options.KeyHashSecret, t.key), Allowed: v.Allowed, State: stateOf(v),
		}
		if len(a.options.KeyHashSecret) == 0 {
			states[i].Key = t.key
		}
	}
	return states, nil
}

func stateOf(v limiters.Verdict) explain.State {
	return explain.State{
		Used: v.Used, Remaining: v.Remaining, RetryAfter: explain.WaitText(v.RetryAfter), ResetAfter: v.ResetAfter.String(),
		Penalty: v.PenaltyLeft.String(),
	}
}

// inspect returns the verdict of each limit of a descriptor on one more hit of its key, in the
// order of the limits. It charges nothing.
func inspect(ctx context.Context, store limiters.Taker, key string, limits []descriptors.RateLimit) ([]limiters.Verdict, error) {
	group := make(limiters.Group, len(limits))
	for i := range limits {
		group[i] = limiters.Op{Key: key, Limit: limits[i].Limit, Kind: limiters.OpInspect}
	}
	out := make([]limiters.Verdict, len(group))
	if err := store.Take(ctx, []limiters.Group{group}, out); err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Err != nil {
			return nil, out[i].Err
		}
	}
	return out, nil
}
