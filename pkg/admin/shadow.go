package admin

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
)

type shadowInput struct {
	Limits int `query:"limits" minimum:"0" maximum:"1000" default:"100" doc:"How many limits to return at most."`
	Keys   int `query:"keys" minimum:"0" maximum:"1000" default:"20" doc:"How many keys of each kind to return at most."`
}

func (a *API) shadow(_ context.Context, in *shadowInput) (*body[api.ShadowReport], error) {
	if a.options.Shadow == nil {
		return nil, huma.Error404NotFound("this process has no shadow file: set SHADOW_CONFIG to a file of candidate rules")
	}
	return &body[api.ShadowReport]{a.options.Shadow(in.Limits, in.Keys)}, nil
}
