package rls

import (
	"math"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/decide"
)

// dynamicMetadata returns the request's descriptors and the metadata of the rules that allow them.
// If rules disagree, the first wins; maps are merged. It copies all maps, because those of the
// rules are shared.
//
// Numbers that exceed the 32 bits of a response are in the metadata in full, as requestsPerUnit and
// limitRemaining of their descriptor.
func dynamicMetadata(m *message, r *decide.Result) *structpb.Struct {
	sent := make([]any, len(m.descriptors))
	for i := range m.descriptors {
		shown := m.descriptors[i].metadata()
		if i < len(r.Decisions) {
			addLargeNumbers(shown, &r.Decisions[i])
		}
		sent[i] = shown
	}
	fields := map[string]any{"domain": r.Domain, "descriptors": sent}
	if m.hitsAddend != 0 {
		fields["hitsAddend"] = m.hitsAddend
	}
	ruleMetadata := map[string]any{}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.Outcome == decide.Allowed && len(d.Limits) > 0 && d.Rule != nil && !d.HasOverride {
			mergeInto(ruleMetadata, d.Rule.Metadata)
		}
	}
	if len(ruleMetadata) > 0 {
		fields["metadata"] = ruleMetadata
	}
	s, err := structpb.NewStruct(fields)
	if err != nil {
		return nil // invalid UTF-8, which a message cannot hold once it is decoded
	}
	return s
}

// addLargeNumbers adds the numbers of a decision that exceed 32 bits to the metadata of its
// descriptor. A double represents them exactly.
func addLargeNumbers(metadata map[string]any, d *decide.Decision) {
	l, v := d.DecidingLimit()
	if l == nil || max(l.RequestsPerUnit, v.Remaining) <= math.MaxUint32 {
		return
	}
	metadata["requestsPerUnit"], metadata["limitRemaining"] = l.RequestsPerUnit, v.Remaining
}

func (d *descriptor) metadata() map[string]any {
	entries := make([]any, len(d.entries))
	for j, e := range d.entries {
		entries[j] = e.String()
	}
	m := map[string]any{"entries": entries}
	if d.hasLimit {
		m["limit"] = d.limit.message().String()
	}
	if d.hasHitsAddend {
		m["hitsAddend"] = d.hitsAddend
	}
	return m
}

func (l *limitOverride) message() *commonv3.RateLimitDescriptor_RateLimitOverride {
	m := &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: l.requestsPerUnit, Unit: l.unit}
	if l.hasMultiplier {
		m.UnitMultiplier = wrapperspb.UInt32(l.multiplier)
	}
	return m
}

// mergeInto adds to dst the keys of src that dst lacks. It copies maps.
func mergeInto(dst, src map[string]any) {
	for name, value := range src {
		inner, isMap := value.(map[string]any)
		existing, found := dst[name]
		switch {
		case !isMap && !found:
			dst[name] = value
		case isMap && !found:
			copied := map[string]any{}
			mergeInto(copied, inner)
			dst[name] = copied
		case isMap:
			if both, ok := existing.(map[string]any); ok {
				mergeInto(both, inner)
			}
		}
	}
}
