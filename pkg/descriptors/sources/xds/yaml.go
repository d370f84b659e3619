package xds

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// yamlOf returns a config as a rules file with one line for each descriptor:
//
//	domain: "ugc"
//	descriptors: [
//	 {key: "user_id", descriptors: [
//	  {key: "action", value: "reply", rate_limit: {unit: "MINUTE", requests_per_unit: 5}}]}]
//
// Its length is at most a small multiple of the message's. Indented blocks would not have this
// bound for deep messages. Equal configs give equal texts.
func yamlOf(c *conf.RateLimitConfig) []byte {
	y := &yaml{}
	y.add("domain: ").text(c.GetDomain()).add("\n")
	y.descriptors(c.GetDescriptors(), 1)
	return y.add("\n").b
}

// maxIndent bounds the spaces before a line.
const maxIndent = 16

type yaml struct{ b []byte }

func (y *yaml) add(s string) *yaml {
	y.b = append(y.b, s...)
	return y
}

// text appends a quoted text. Go's escapes are valid YAML for valid UTF-8, which protobuf
// guarantees.
func (y *yaml) text(s string) *yaml {
	y.b = strconv.AppendQuote(y.b, s)
	return y
}

func (y *yaml) number(n uint32) *yaml {
	y.b = strconv.AppendUint(y.b, uint64(n), 10)
	return y
}

func (y *yaml) flag(key string, set bool) *yaml {
	if set {
		y.add(", ").add(key).add(": true")
	}
	return y
}

func (y *yaml) descriptors(list []*conf.RateLimitDescriptor, depth int) {
	y.add("descriptors: [")
	for i, d := range list {
		if i > 0 {
			y.add(",")
		}
		y.add("\n").add(strings.Repeat(" ", min(depth, maxIndent)))
		y.descriptor(d, depth)
	}
	y.add("]")
}

func (y *yaml) descriptor(d *conf.RateLimitDescriptor, depth int) {
	y.add("{key: ").text(d.GetKey())
	if d.GetValue() != "" {
		y.add(", value: ").text(d.GetValue())
	}
	if d.GetRateLimit() != nil {
		y.add(", rate_limit: ")
		y.policy(d.GetRateLimit())
	}
	// Envoy Gateway also sets shadow_mode on the parents of a limit, where it would cause a warning
	// and has no effect.
	y.flag("shadow_mode", d.GetShadowMode() && d.GetRateLimit() != nil)
	y.flag("detailed_metric", d.GetDetailedMetric())
	y.flag("quota_mode", d.GetQuotaMode())
	if d.GetMetadata() != nil {
		y.add(", metadata: ")
		y.fields(d.GetMetadata())
	}
	if len(d.GetDescriptors()) > 0 {
		y.add(", ")
		y.descriptors(d.GetDescriptors(), depth+1)
	}
	y.add("}")
}

// policy appends a rate_limit. It writes an unknown unit as its number, which the parser reports as
// a fault.
func (y *yaml) policy(p *conf.RateLimitPolicy) {
	y.add("{")
	if p.GetUnlimited() {
		y.add("unlimited: true")
	} else {
		y.add("requests_per_unit: ").number(p.GetRequestsPerUnit())
	}
	if !p.GetUnlimited() || p.GetUnit() != conf.RateLimitUnit_UNKNOWN {
		y.add(", unit: ").text(p.GetUnit().String())
	}
	if p.GetName() != "" {
		y.add(", name: ").text(p.GetName())
	}
	if len(p.GetReplaces()) > 0 {
		y.add(", replaces: [")
		for i, r := range p.GetReplaces() {
			if i > 0 {
				y.add(", ")
			}
			y.add("{name: ").text(r.GetName()).add("}")
		}
		y.add("]")
	}
	y.add("}")
}

// maxSimpleKeyBytes bounds a key without an explicit '?' indicator. The limit of YAML is 1024.
const maxSimpleKeyBytes = 1000

func (y *yaml) fields(s *structpb.Struct) {
	y.add("{")
	for i, key := range slices.Sorted(maps.Keys(s.GetFields())) {
		if i > 0 {
			y.add(", ")
		}
		quoted := strconv.Quote(key)
		if len(quoted) > maxSimpleKeyBytes {
			y.add("? ")
		}
		y.add(quoted).add(": ")
		y.value(s.GetFields()[key])
	}
	y.add("}")
}

func (y *yaml) value(v *structpb.Value) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		y.b = strconv.AppendBool(y.b, kind.BoolValue)
	case *structpb.Value_NumberValue:
		y.float(kind.NumberValue)
	case *structpb.Value_StringValue:
		y.text(kind.StringValue)
	case *structpb.Value_StructValue:
		y.fields(kind.StructValue)
	case *structpb.Value_ListValue:
		y.add("[")
		for i, item := range kind.ListValue.GetValues() {
			if i > 0 {
				y.add(", ")
			}
			y.value(item)
		}
		y.add("]")
	default:
		y.add("null")
	}
}

func (y *yaml) float(f float64) {
	switch {
	case math.IsNaN(f):
		y.add(".nan")
	case math.IsInf(f, 1):
		y.add(".inf")
	case math.IsInf(f, -1):
		y.add("-.inf")
	default:
		y.b = strconv.AppendFloat(y.b, f, 'g', -1, 64)
	}
}
