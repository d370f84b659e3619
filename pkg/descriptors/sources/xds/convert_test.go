package xds

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	lib "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	conf "github.com/weir-rls/weir/pkg/descriptors/sources/xds/ratelimitconfigv3"
)

// everything has every field.
const everything = `{
  "name": "resource", "domain": "ugc",
  "descriptors": [
    {"key": "user_id", "descriptors": [
      {"key": "action", "value": "reply", "rateLimit": {"unit": "MINUTE", "requestsPerUnit": 5, "name": "replies",
        "replaces": [{"name": "all"}, {"name": "some"}]},
       "shadowMode": true, "detailedMetric": true, "quotaMode": true,
       "metadata": {"n": 1.5, "list": [true, null, "a: b"], "map": {"<<": {}}}},
      {"key": "vip", "value": "yes", "rateLimit": {"unlimited": true}}]},
    {"key": "week", "rateLimit": {"unit": "WEEK"}},
    {"key": "wrong", "rateLimit": {"unit": 99, "requestsPerUnit": 4294967295}},
    {"key": "unknown", "rateLimit": {"requestsPerUnit": 1}},
    {"key": "both", "rateLimit": {"unit": "DAY", "unlimited": true, "requestsPerUnit": 1}}]
}`

const everythingYAML = `domain: "ugc"
descriptors: [
 {key: "user_id", descriptors: [
  {key: "action", value: "reply", rate_limit: {requests_per_unit: 5, unit: "MINUTE", name: "replies", ` +
	`replaces: [{name: "all"}, {name: "some"}]}, shadow_mode: true, detailed_metric: true, quota_mode: true, ` +
	`metadata: {"list": [true, null, "a: b"], "map": {"<<": {}}, "n": 1.5}},
  {key: "vip", value: "yes", rate_limit: {unlimited: true}}]},
 {key: "week", rate_limit: {requests_per_unit: 0, unit: "WEEK"}},
 {key: "wrong", rate_limit: {requests_per_unit: 4294967295, unit: "99"}},
 {key: "unknown", rate_limit: {requests_per_unit: 1, unit: "UNKNOWN"}},
 {key: "both", rate_limit: {unlimited: true, unit: "DAY"}}]
`

func configOf(t testing.TB, json string) *conf.RateLimitConfig {
	t.Helper()
	c := &conf.RateLimitConfig{}
	must.Succeed(t, protojson.Unmarshal([]byte(json), c))
	return c
}

func TestYAMLHasEveryField(t *testing.T) {
	if got := string(yamlOf(configOf(t, everything))); got != everythingYAML {
		t.Errorf("got\n%s\nwant\n%s", got, everythingYAML)
	}
	if got, want := string(yamlOf(&conf.RateLimitConfig{})), "domain: \"\"\ndescriptors: []\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEveryUnitIsParsed(t *testing.T) {
	for unit, want := range map[conf.RateLimitUnit]descriptors.Unit{
		conf.RateLimitUnit_SECOND: descriptors.Second, conf.RateLimitUnit_MINUTE: descriptors.Minute,
		conf.RateLimitUnit_HOUR: descriptors.Hour, conf.RateLimitUnit_DAY: descriptors.Day,
		conf.RateLimitUnit_WEEK: descriptors.Week, conf.RateLimitUnit_MONTH: descriptors.Month,
		conf.RateLimitUnit_YEAR: descriptors.Year,
	} {
		text := yamlOf(&conf.RateLimitConfig{Domain: "d", Descriptors: []*conf.RateLimitDescriptor{
			{Key: "k", RateLimit: &conf.RateLimitPolicy{Unit: unit, RequestsPerUnit: 3}}}})
		rules, err := rulesfile.Parse(rulesfile.File{Name: "f", Data: text})
		if err != nil {
			t.Error(err)
			continue
		}
		limit := rules.Match("d", []descriptors.Entry{{Key: "k"}}).Limits[0]
		if limit.Unit != want || limit.RequestsPerUnit != 3 || limit.UnitMultiplier != 1 {
			t.Errorf("%v became %+v", unit, limit)
		}
	}
}

func parse(t *testing.T, json string) *descriptors.Rules {
	t.Helper()
	rules, warnings, err := rulesfile.ParseWith(rulesfile.Options{}, rulesfile.File{Name: "f", Data: yamlOf(configOf(t, json))})
	must.Succeed(t, err)
	for _, w := range warnings {
		t.Errorf("warning: %v", w)
	}
	return rules
}

func TestEveryModifierIsParsed(t *testing.T) {
	rules := parse(t, `{"domain": "d", "descriptors": [
		{"key": "k", "value": "v",
		 "rateLimit": {"unit": "HOUR", "requestsPerUnit": 7, "name": "new", "replaces": [{"name": "old"}]},
		 "shadowMode": true, "quotaMode": true, "detailedMetric": true,
		 "metadata": {"n": 1.5, "list": [true, null, "1"], "map": {"<<": {}}}},
		{"key": "u", "rateLimit": {"unlimited": true, "name": "old"}}]}`)
	r := rules.Match("d", []descriptors.Entry{{Key: "k", Value: "v"}})
	want := map[string]any{"n": 1.5, "list": []any{true, nil, "1"}, "map": map[string]any{"<<": map[string]any{}}}
	if r.LimitName != "new" || len(r.Replaces) != 1 || r.Replaces[0] != "old" || !r.ShadowMode || !r.QuotaMode ||
		r.Unlimited || !reflect.DeepEqual(r.Metadata, want) || r.Limits[0].RequestsPerUnit != 7 {
		t.Errorf("the rule is %+v", r)
	}
	if r := rules.Match("d", []descriptors.Entry{{Key: "u", Value: "x"}}); !r.Unlimited || r.LimitName != "old" {
		t.Errorf("the rule is %+v", r)
	}
}

func TestRuleSourceIsItsXDSResource(t *testing.T) {
	value, err := proto.Marshal(configOf(t, `{"name": "gateway/default", "domain": "d", "descriptors": [
		{"key": "k", "rateLimit": {"unit": "HOUR", "requestsPerUnit": 7}}]}`))
	must.Succeed(t, err)
	files, err := convert(&discovery.DiscoveryResponse{TypeUrl: TypeURL, Resources: []*anypb.Any{{TypeUrl: TypeURL, Value: value}}})
	must.Succeed(t, err)
	rules, err := rulesfile.Parse(files...)
	must.Succeed(t, err)
	for r := range rules.All() {
		if got := r.Source(); got != "gateway/default" {
			t.Errorf("source %q, want the name of the resource", got)
		}
	}
}

// The rules are those that Envoy Gateway makes from a policy, with shadow_mode on each level.
func TestEnvoyGatewayRulesHaveNoWarnings(t *testing.T) {
	rules := parse(t, `{"name": "default/eg/http", "domain": "default/eg/http", "descriptors": [
		{"key": "httproute/default/r/rule/0/match/0/www_example_com",
		 "value": "httproute/default/r/rule/0/match/0/www_example_com", "shadowMode": true, "descriptors": [
			{"key": "rule-0-match-0", "value": "rule-0-match-0", "shadowMode": true, "descriptors": [
				{"key": "masked_remote_address", "value": "invert:192.0.2.0/24", "shadowMode": true, "descriptors": [
					{"key": "remote_address", "shadowMode": true, "rateLimit": {"unit": "SECOND", "requestsPerUnit": 3}}]}]},
			{"key": "rule-1-match--1", "value": "rule-1-match--1", "rateLimit": {"unit": "YEAR", "requestsPerUnit": 1000}}]}]}`)
	route := "httproute/default/r/rule/0/match/0/www_example_com"
	r := rules.Match("default/eg/http", []descriptors.Entry{
		{Key: route, Value: route}, {Key: "rule-0-match-0", Value: "rule-0-match-0"},
		{Key: "masked_remote_address", Value: "invert:192.0.2.0/24"}, {Key: "remote_address", Value: "::1"},
	})
	if r == nil || !r.ShadowMode || r.Limits[0].RequestsPerUnit != 3 {
		t.Errorf("the rule is %+v", r)
	}
}

// The numbers are the wire format: what a gateway's own build of the messages writes must be read
// as it was meant.
func TestFieldNumbersMatchWireFormat(t *testing.T) {
	wire := "\n\x01n" + "\x12\x01d" + "\x1a\x28" + // name, domain, descriptors:
		"\n\x01k" + "\x12\x01v" + // key, value
		"\x1a\x13" + "\x08\x07" + "\x10\x2a" + "\x18\x01" + "\x22\x03new" + "\x2a\x06\n\x04" + "old!" + // rate_limit
		"\x22\x03\n\x01c" + // descriptors
		"\x28\x01" + "\x30\x01" + "\x38\x01" + "\x42\x00" // shadow_mode, detailed_metric, quota_mode, metadata
	c := &conf.RateLimitConfig{}
	must.Succeed(t, proto.Unmarshal([]byte(wire), c))
	want := configOf(t, `{"name": "n", "domain": "d", "descriptors": [{"key": "k", "value": "v",
		"rateLimit": {
			"unit": "WEEK", "requestsPerUnit": 42, "unlimited": true, "name": "new", "replaces": [{"name": "old!"}]},
		"descriptors": [{"key": "c"}], "shadowMode": true, "detailedMetric": true, "quotaMode": true, "metadata": {}}]}`)
	if !proto.Equal(c, want) {
		t.Errorf("got %v\nwant %v", c, want)
	}
	if got := "type.googleapis.com/" + string(c.ProtoReflect().Descriptor().FullName()); got != TypeURL {
		t.Errorf("the message is %s, want %s", got, TypeURL)
	}
	units := conf.RateLimitUnit(0).Descriptor().Values()
	var names []string
	for i := range units.Len() {
		names = append(names, fmt.Sprintf("%d=%s", units.Get(i).Number(), units.Get(i).Name()))
	}
	if got := strings.Join(names, " "); got != "0=UNKNOWN 1=SECOND 2=MINUTE 3=HOUR 4=DAY 5=MONTH 6=YEAR 7=WEEK" {
		t.Errorf("units %s", got)
	}
}

func TestTextSurvivesConversion(t *testing.T) {
	for _, text := range []string{
		"true", "123", "1.5", "null", "~", "- a", "a: b", "#", "<<", "*", "&a", "!!int 1", "'", `"`, `\`, "{", "}", "[",
		",", " a ", "\n", "\r\n", "\t", "\x00", "\x01\x1f\x7f", "\u0085", "\u00a0", "\u00ad", "\u2028", "\u2029", "\ufeff",
		"\ufffe", "\uffff", "\U0001F600", "\U0010FFFF", "ö", "---", "...", "%YAML", strings.Repeat("long ", 2000),
		"httproute/ns/name/rule/0/match/-1/a_b", "invert:192.0.2.0/24", "::1",
	} {
		c := &conf.RateLimitConfig{Domain: text, Descriptors: []*conf.RateLimitDescriptor{{Key: text, Value: text + "!"}}}
		var got struct {
			Domain      string
			Descriptors []struct{ Key, Value string }
		}
		if err := lib.Unmarshal(yamlOf(c), &got); err != nil {
			t.Errorf("read the YAML for the text %q: %v", text, err)
			continue
		}
		if got.Domain != text || got.Descriptors[0].Key != text || got.Descriptors[0].Value != text+"!" {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestResourceAboveMaxTextIsRejected(t *testing.T) {
	value, err := proto.Marshal(&conf.RateLimitConfig{Name: "n", Domain: strings.Repeat("\x01", maxResourceBytes/4)})
	must.Succeed(t, err)
	push := &discovery.DiscoveryResponse{TypeUrl: TypeURL, Resources: []*anypb.Any{{TypeUrl: TypeURL, Value: value}}}
	if _, err := convert(push); err == nil || !strings.Contains(err.Error(), `"n" is too large`) {
		t.Errorf("the error is %v", err)
	}
}

func TestErrorOfAPushNamesTheFirstUnreadableResources(t *testing.T) {
	push := &discovery.DiscoveryResponse{TypeUrl: TypeURL, Resources: slices.Repeat([]*anypb.Any{{}}, 100_000)}
	_, err := convert(push)
	if err == nil {
		t.Fatal("resources without a type were accepted")
	}
	if lines := strings.Split(err.Error(), "\n"); len(lines) != maxUnreadable || !strings.HasPrefix(lines[0], "resource 1 of 100000: ") {
		t.Errorf("%d lines, the first %q: want %d, from resource 1", len(lines), lines[0], maxUnreadable)
	}
}

// FuzzConvert converts any bytes of a resource. A valid message becomes YAML with the same content,
// which Parse either accepts or rejects with errors.
func FuzzConvert(f *testing.F) {
	for _, json := range []string{everything, `{}`, `{"domain": "\u0001\ufeff", "descriptors": [{}]}`,
		`{"domain": "d", "descriptors": [{"key": "*", "value": "a*", "metadata": {"": "NaN", "<<": -0.0}}]}`,
		`{"domain": "d", "descriptors": [{"key": "k", "metadata": {"` + strings.Repeat("long ", 300) + `": {"a": 1e300}}}]}`} {
		value, err := proto.Marshal(configOf(f, json))
		must.Succeed(f, err)
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		push := &discovery.DiscoveryResponse{TypeUrl: TypeURL, Resources: []*anypb.Any{{TypeUrl: TypeURL, Value: value}}}
		files, err := convert(push)
		c := &conf.RateLimitConfig{}
		if bad := (proto.UnmarshalOptions{RecursionLimit: maxNesting}).Unmarshal(value, c); (bad != nil) != (err != nil) {
			t.Fatalf("%v, want %v", err, bad)
		}
		if err != nil {
			return
		}
		again, err := convert(push)
		if err != nil || rulesfile.Fingerprint(again) != rulesfile.Fingerprint(files) {
			t.Fatalf("converted again: %v\n%s\n%s", err, files[0].Data, again[0].Data)
		}
		var got tree
		if err := lib.Unmarshal(files[0].Data, &got); err != nil {
			t.Fatalf("%v in\n%s", err, files[0].Data)
		}
		if got.Domain != c.GetDomain() {
			t.Fatalf("domain %q, want %q", got.Domain, c.GetDomain())
		}
		compare(t, got.Descriptors, c.GetDescriptors())
		var faults rulesfile.Faults
		if _, err := rulesfile.Parse(files...); err != nil && (!errors.As(err, &faults) || len(faults) == 0) {
			t.Fatalf("Parse: %v", err)
		}
	})
}

// A tree is the rules as the YAML library decodes them.
type tree struct {
	Domain      string
	Descriptors []branch
}

type branch struct {
	Key, Value string
	RateLimit  *struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	} `yaml:"rate_limit"`
	ShadowMode     bool `yaml:"shadow_mode"`
	DetailedMetric bool `yaml:"detailed_metric"`
	QuotaMode      bool `yaml:"quota_mode"`
	Metadata       map[string]any
	Descriptors    []branch
}

func compare(t *testing.T, got []branch, want []*conf.RateLimitDescriptor) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d descriptors, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g.Key != w.GetKey() || g.Value != w.GetValue() ||
			g.ShadowMode != (w.GetShadowMode() && w.GetRateLimit() != nil) ||
			g.DetailedMetric != w.GetDetailedMetric() || g.QuotaMode != w.GetQuotaMode() ||
			(g.RateLimit == nil) != (w.GetRateLimit() == nil) {
			t.Fatalf("%+v, want %v", g, w)
		}
		if p := w.GetRateLimit(); p != nil {
			l := g.RateLimit
			if l.Unlimited != p.GetUnlimited() || l.Name != p.GetName() || len(l.Replaces) != len(p.GetReplaces()) ||
				!l.Unlimited && (l.Unit != p.GetUnit().String() || l.RequestsPerUnit != p.GetRequestsPerUnit()) {
				t.Fatalf("%+v, want %v", l, p)
			}
			for j, r := range l.Replaces {
				if r.Name != p.GetReplaces()[j].GetName() {
					t.Fatalf("%+v, want %v", l, p)
				}
			}
		}
		m := w.GetMetadata()
		if (m == nil) != (g.Metadata == nil) || m != nil && !same(g.Metadata, structpb.NewStructValue(m)) {
			t.Fatalf("metadata %v, want %v", g.Metadata, m)
		}
		compare(t, g.Descriptors, w.GetDescriptors())
	}
}

// same reports whether the YAML library has decoded v.
func same(got any, v *structpb.Value) bool {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		var f float64
		switch n := got.(type) {
		case float64:
			f = n
		default:
			number := reflect.ValueOf(got)
			switch {
			case !number.IsValid():
				return false
			case number.CanInt():
				f = float64(number.Int())
			case number.CanUint():
				f = float64(number.Uint())
			default:
				return false
			}
		}
		return f == kind.NumberValue || math.IsNaN(f) && math.IsNaN(kind.NumberValue)
	case *structpb.Value_StructValue:
		fields, ok := got.(map[string]any)
		if !ok || len(fields) != len(kind.StructValue.GetFields()) {
			return false
		}
		for key, value := range kind.StructValue.GetFields() {
			if item, has := fields[key]; !has || !same(item, value) {
				return false
			}
		}
		return true
	case *structpb.Value_ListValue:
		list, ok := got.([]any)
		if !ok || len(list) != len(kind.ListValue.GetValues()) {
			return false
		}
		for i, item := range list {
			if !same(item, kind.ListValue.GetValues()[i]) {
				return false
			}
		}
		return true
	case *structpb.Value_StringValue:
		return got == kind.StringValue
	case *structpb.Value_BoolValue:
		return got == kind.BoolValue
	}
	return got == nil
}
