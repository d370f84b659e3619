package admin

import (
	"context"
	"time"

	"github.com/weir-rls/weir/pkg/admin/api"
)

func (a *API) status(context.Context, *struct{}) (*body[api.Status], error) {
	s := a.options.Status()
	rules := a.options.Rules()
	s.Version, s.RulesVersion = a.options.Version, rules.Version()
	s.Domains, s.Rules = rules.Counts()
	for _, rate := range a.rates.ofRules(rules) {
		s.Allowed, s.Denied = s.Allowed+rate.allowed, s.Denied+rate.denied
	}
	s.UptimeSeconds = time.Since(a.started).Seconds()
	s.Store.CallsPerSecond, s.Store.LatencySeconds = a.rates.ofStore()
	return &body[api.Status]{s}, nil
}
