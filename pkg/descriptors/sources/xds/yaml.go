package xds

import (
	"bytes"
	"fmt"
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
	y.add("domain: %q\n", c.GetDomain())
	y.descriptors(c.GetDescriptors(), 1)
	y.add("\n")
	return y.Bytes()
}

// maxIndent bounds the spaces before a line.
const maxIndent = 16

type yaml struct{ bytes.Buffer }

// add appends formatted text. %q quotes a text as YAML: Go's escapes are valid YAML for valid
// UTF-8, which protobuf guarantees.
func (y *yaml) add(format string, values ...any) { fmt.Fprintf(y, format, values...) }

func (y *yaml) flag(key string, set bool) {
	if set {
		y.add(", %s: true", key)
	}
}

func (y *yaml) descriptors(list []*conf.RateLimitDescriptor, depth int) {
	y.add("descriptors: [")
	for i, d := range list {
		if i > 0 {
			y.add(",")
		}
		y.add("\n%*s", min(depth, maxIndent), "")
		y.descriptor(d, depth)
	}
	y.add("]")
}

func (y *yaml) descriptor(d *conf.RateLimitDescriptor, depth int) {
	y.add("{key: %q", d.GetKey())
	if d.GetValue() != "" {
		y.add(", value: %q", d.GetValue())
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
	if p.GetUnlimited() {
		y.add("{unlimited: true")
	} else {
		y.add("{requests_per_unit: %d", p.GetRequestsPerUnit())
	}
	if !p.GetUnlimited() || p.GetUnit() != conf.RateLimitUnit_UNKNOWN {
		y.add(", unit: %q", p.GetUnit().String())
	}
	if p.GetName() != "" {
		y.add(", name: %q", p.GetName())
	}
	if len(p.GetReplaces()) > 0 {
		names := make([]string, len(p.GetReplaces()))
		for i, r := range p.GetReplaces() {
			names[i] = fmt.Sprintf("{name: %q}", r.GetName())
		}
		y.add(", replaces: [%s]", strings.Join(names, ", "))
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
		y.add("%s: ", quoted)
		y.value(s.GetFields()[key])
	}
	y.add("}")
}

func (y *yaml) value(v *structpb.Value) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		y.add("%t", kind.BoolValue)
	case *structpb.Value_NumberValue:
		y.float(kind.NumberValue)
	case *structpb.Value_StringValue:
		y.add("%q", kind.StringValue)
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
		y.WriteString(strconv.FormatFloat(f, 'g', -1, 64))
	}
}
