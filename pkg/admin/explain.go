package admin

import (
	"context"
	"errors"

	"github.com/danielgtaylor/huma/v2"

	"github.com/weir-rls/weir/pkg/admin/api"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/explain"
)

const explainPath = "/v1/explain"

func (a *API) explain(ctx context.Context, in *body[api.ExplainRequest]) (*body[*explain.Explanation], error) {
	request, err := a.requestOf(&in.Body)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	rules := a.options.Rules()
	if rules == nil { // the request gets UNAVAILABLE, so "no limit" would be wrong
		return nil, errNoRules
	}
	explanation := explain.ForRequest(explain.Options{Decide: a.options.Decide, KeyHashSecret: a.options.KeyHashSecret}, rules, request)
	if explanation.Error != "" {
		return nil, huma.Error422UnprocessableEntity(explanation.Error)
	}
	if in.Body.Live {
		if err := a.addStates(ctx, explanation); err != nil {
			return nil, a.storeFailed(ctx, explainPath, err)
		}
	}
	return &body[*explain.Explanation]{explanation}, nil
}

// requestOf returns the request to explain. Its hits are 1, unless the request in Envoy's form sets
// them.
func (a *API) requestOf(in *api.ExplainRequest) (*decide.Request, error) {
	switch {
	case len(in.Request) == 0 || string(in.Request) == "null":
	case in.Domain != "" || len(in.Descriptors) > 0:
		return nil, errors.New("request and descriptors are both set: send one of them")
	default:
		return a.options.ParseRequest(in.Request)
	}
	request := &decide.Request{Domain: in.Domain}
	for _, entries := range in.Descriptors {
		d := decide.Descriptor{Hits: 1}
		for _, e := range entries {
			d.Entries = append(d.Entries, entryOf(e))
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request, nil
}

// addStates adds the states of the keys to an explanation.
func (a *API) addStates(ctx context.Context, explanation *explain.Explanation) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for i := range explanation.Descriptors {
		d := &explanation.Descriptors[i]
		key, limits := d.Planned()
		if len(limits) == 0 {
			continue
		}
		states, err := inspect(ctx, a.options.Store, key, limits)
		if err != nil {
			return err
		}
		for j := range states {
			state := stateOf(states[j])
			d.Limits[j].State = &state
		}
	}
	return nil
}
