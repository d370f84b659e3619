package admin

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
)

type topInput struct {
	By     string `query:"by" enum:"hits,denied" default:"hits" doc:"hits: the busiest keys. denied: those with the most denied hits."`
	Domain string `query:"domain" maxLength:"4096" doc:"Only keys of this domain."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"20" doc:"How many keys to return at most."`
}

func (a *API) top(_ context.Context, in *topInput) (*body[api.Top], error) {
	if a.options.Top == nil {
		return nil, huma.Error404NotFound("this process does not count heavy keys: set TOP_KEYS, for example to 1000")
	}
	if in.Domain != "" {
		if _, err := requireDomain(a.options.Rules(), in.Domain); err != nil {
			return nil, err
		}
	}
	return &body[api.Top]{a.options.Top(api.TopOrder(in.By), in.Domain, in.Limit)}, nil
}
