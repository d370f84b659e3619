package rls

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// dynamicMetadata tells Envoy what was asked, and the metadata of the rules whose descriptors pass: of a name that two of
// them give the first counts, and what is a map in both is put together. All of it is made anew for each response: what
// the rules hold is shared, and is not to be changed.
func dynamicMetadata(
	request *ratelimitv3.RateLimitRequest, p planned, statuses []*descriptorStatus,
) *structpb.Struct {
	told := make([]any, len(request.GetDescriptors()))
	for i, d := range request.GetDescriptors() {
		entries := make([]any, len(d.GetEntries()))
		for j, e := range d.GetEntries() {
			entries[j] = e.GetKey() + "=" + e.GetValue()
		}
		one := map[string]any{"entries": entries}
		if d.GetLimit() != nil {
			one["limit"] = d.GetLimit().String()
		}
		if d.GetHitsAddend() != nil {
			one["hitsAddend"] = d.GetHitsAddend().GetValue()
		}
		told[i] = one
	}
	all := map[string]any{"domain": request.GetDomain(), "descriptors": told}
	if n := request.GetHitsAddend(); n != 0 {
		all["hitsAddend"] = n
	}
	merged := map[string]any{}
	for i := range p.matches {
		m := &p.matches[i]
		if m.rule != nil && !m.override && !m.unlimited && len(m.limits) > 0 && statuses[i].GetCode() == codeOK {
			mergeInto(merged, m.rule.Metadata)
		}
	}
	if len(merged) > 0 {
		all["metadata"] = merged
	}
	s, err := structpb.NewStruct(all)
	if err != nil {
		// Text that is no UTF-8, which protobuf itself would have refused.
		return nil
	}
	return s
}

// mergeInto adds what from has and into has not. It keeps no map of from's, which would be changed by the next.
func mergeInto(into, from map[string]any) {
	for name, value := range from {
		inner, isMap := value.(map[string]any)
		there, found := into[name]
		switch {
		case !isMap && !found:
			into[name] = value
		case isMap && !found:
			own := map[string]any{}
			mergeInto(own, inner)
			into[name] = own
		case isMap:
			if both, ok := there.(map[string]any); ok {
				mergeInto(both, inner)
			}
		}
	}
}
