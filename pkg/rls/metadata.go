package rls

import (
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// dynamicMetadata tells Envoy what was asked, and the metadata of the rules whose descriptors pass: of a name that two of
// them give the first counts, and what is a map in both is put together. All of it is made anew for each response: what
// the rules hold is shared, and is not to be changed.
func dynamicMetadata(asked *asking, p *planned, statuses []descriptorStatus) *structpb.Struct {
	told := make([]any, len(asked.descriptors))
	for i := range asked.descriptors {
		d := &asked.descriptors[i]
		entries := make([]any, len(d.entries))
		for j, e := range d.entries {
			entries[j] = e.Key + "=" + e.Value
		}
		one := map[string]any{"entries": entries}
		if d.limited {
			one["limit"] = d.limit.message().String()
		}
		if d.addended {
			one["hitsAddend"] = d.addend
		}
		told[i] = one
	}
	all := map[string]any{"domain": asked.domain, "descriptors": told}
	if asked.addend != 0 {
		all["hitsAddend"] = asked.addend
	}
	merged := map[string]any{}
	for i := range p.matches {
		m := &p.matches[i]
		if m.rule != nil && !m.override && !m.unlimited && len(m.limits) > 0 && statuses[i].code == codeOK {
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

func (l *sentLimit) message() *commonv3.RateLimitDescriptor_RateLimitOverride {
	m := &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: l.requestsPerUnit, Unit: l.unit}
	if l.multiplied {
		m.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
	}
	return m
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
