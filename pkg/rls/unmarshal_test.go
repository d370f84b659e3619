package rls

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/internal/must"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// If this test fails after an update of go-control-plane, look at the new fields before you list
// them as unused.
func TestTagsMatchEnvoysDefinitions(t *testing.T) {
	request, response := (&ratelimitv3.RateLimitRequest{}).ProtoReflect().Descriptor(),
		(&ratelimitv3.RateLimitResponse{}).ProtoReflect().Descriptor()
	descriptor := request.Fields().ByName("descriptors").Message()
	status := response.Fields().ByName("statuses").Message()
	metadata := (&structpb.Struct{}).ProtoReflect().Descriptor()
	for _, c := range []struct {
		message protoreflect.MessageDescriptor
		tags    map[protoreflect.Name]uint64
		unused  []protoreflect.Name
	}{
		{request, map[protoreflect.Name]uint64{"domain": tagDomain, "descriptors": tagDescriptors, "hits_addend": tagHitsAddend}, nil},
		{descriptor, map[protoreflect.Name]uint64{"entries": tagEntries, "limit": tagLimit,
			"hits_addend": tagDescriptorAddend, "is_negative_hits": tagIsNegativeHits}, nil},
		{descriptor.Fields().ByName("entries").Message(), map[protoreflect.Name]uint64{"key": tagKey, "value": tagValue}, nil},
		{descriptor.Fields().ByName("limit").Message(), map[protoreflect.Name]uint64{
			"requests_per_unit": tagOverrideRequests, "unit": tagOverrideUnit, "unit_multiplier": tagOverrideMultiplier}, nil},
		{(&wrapperspb.UInt64Value{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{"value": tagWrapped}, nil},
		{(&wrapperspb.UInt32Value{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{"value": tagWrapped}, nil},
		{response, map[protoreflect.Name]uint64{"overall_code": tagOverallCode, "statuses": tagStatuses,
			"response_headers_to_add": tagResponseHeadersToAdd, "raw_body": tagRawBody,
			"dynamic_metadata": tagDynamicMetadata}, []protoreflect.Name{"request_headers_to_add", "quota"}},
		{response.Fields().ByName("response_headers_to_add").Message(), map[protoreflect.Name]uint64{
			"key": tagHeaderKey, "value": tagHeaderValue}, []protoreflect.Name{"raw_value"}},
		{metadata, map[protoreflect.Name]uint64{"fields": tagFields}, nil},
		{metadata.Fields().ByName("fields").Message(), map[protoreflect.Name]uint64{
			"key": tagFieldKey, "value": tagFieldValue}, nil},
		{(&structpb.Value{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{
			"string_value": tagStringValue, "struct_value": tagStructValue},
			[]protoreflect.Name{"null_value", "number_value", "bool_value", "list_value"}},
		{status, map[protoreflect.Name]uint64{"code": tagCode, "current_limit": tagCurrentLimit,
			"limit_remaining": tagLimitRemaining, "duration_until_reset": tagDurationUntilReset},
			[]protoreflect.Name{"quota"}},
		{status.Fields().ByName("current_limit").Message(), map[protoreflect.Name]uint64{
			"requests_per_unit": tagRequestsPerUnit, "unit": tagUnit, "name": tagName,
			"unit_multiplier": tagUnitMultiplier}, nil},
		{(&durationpb.Duration{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{"seconds": tagSeconds},
			[]protoreflect.Name{"nanos"}},
	} {
		fields := c.message.Fields()
		if fields.Len() != len(c.tags)+len(c.unused) {
			t.Errorf("%s has %d fields, want %d: add the new fields to the test", c.message.FullName(), fields.Len(), len(c.tags)+len(c.unused))
		}
		for name, tag := range c.tags {
			f := fields.ByName(name)
			typ := protowire.VarintType
			switch f.Kind() {
			case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
				typ = protowire.BytesType
			}
			if want := protowire.EncodeTag(f.Number(), typ); tag != want {
				t.Errorf("%s: tag %d, want %d", f.FullName(), tag, want)
			}
		}
		for _, name := range c.unused {
			if fields.ByName(name) == nil {
				t.Errorf("%s has no field %s any more", c.message.FullName(), name)
			}
		}
	}
}

// proto returns m as Envoy's generated type.
func (m *message) proto() *ratelimitv3.RateLimitRequest {
	r := &ratelimitv3.RateLimitRequest{Domain: m.domain, HitsAddend: m.hitsAddend}
	for i := range m.descriptors {
		d := &m.descriptors[i]
		sent := &commonv3.RateLimitDescriptor{IsNegativeHits: d.isNegativeHits}
		for _, e := range d.entries {
			sent.Entries = append(sent.Entries, &commonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if d.hasLimit {
			sent.Limit = d.limit.message()
		}
		if d.hasHitsAddend {
			sent.HitsAddend = wrapperspb.UInt64(d.hitsAddend)
		}
		r.Descriptors = append(r.Descriptors, sent)
	}
	return r
}

// testSameAsProto decodes wire with this package, into a reused exchange, and with proto.Unmarshal.
// The results must be equal.
func testSameAsProto(t *testing.T, c *exchange, wire []byte) {
	t.Helper()
	var want ratelimitv3.RateLimitRequest
	wantErr := proto.Unmarshal(wire, &want)
	c.decodeErr = nil
	if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, c); err != nil {
		t.Fatalf("%x: %v, want the error in the exchange", wire, err)
	}
	if c.decodeErr == nil && wantErr != nil && strings.Contains(wantErr.Error(), "invalid UTF-8") {
		return // in values: TestValueWithInvalidUTF8IsDecoded
	}
	if (c.decodeErr == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, where proto.Unmarshal has %v", wire, c.decodeErr, wantErr)
	}
	if wantErr != nil {
		return
	}
	// Beyond the bounds, the exchange has only the fact that there are more.
	for _, d := range want.GetDescriptors() {
		d.Entries = d.Entries[:min(len(d.GetEntries()), decide.MaxEntries+1)]
	}
	if n := len(want.GetDescriptors()); n > decide.MaxDescriptors {
		want.Descriptors = append(want.Descriptors[:decide.MaxDescriptors], want.Descriptors[n-1])
	}
	discardUnknown(want.ProtoReflect())
	for _, d := range want.GetDescriptors() {
		for _, e := range d.GetEntries() {
			e.Value = descriptors.EscapeInvalidUTF8(e.GetValue())
		}
	}
	if got := c.message.proto(); !proto.Equal(got, &want) {
		t.Fatalf("%x:\n got %v\nwant %v", wire, got, &want)
	}
}

func discardUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				discardUnknown(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			discardUnknown(v.Message())
		}
		return true
	})
}

// randomMessage returns a message with mistakes: unknown or repeated fields, wrong wire types,
// over-long varints, a missing end.
func randomMessage(r *rand.Rand, depth int) []byte {
	var b []byte
	for range r.IntN(5) {
		number := protowire.Number(1 + r.IntN(5))
		if r.IntN(30) == 0 {
			number = []protowire.Number{0, 15, 16, protowire.MaxValidNumber, protowire.MaxValidNumber + 1}[r.IntN(5)]
		}
		typ := []protowire.Type{protowire.BytesType, protowire.BytesType, protowire.BytesType, protowire.VarintType}[r.IntN(4)]
		if r.IntN(20) == 0 {
			typ = protowire.Type(r.IntN(8))
		}
		b = appendVarint(r, b, protowire.EncodeTag(number, typ))
		switch typ {
		case protowire.VarintType:
			n := []uint64{0, 1, 2, 127, 128, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64, r.Uint64()}[r.IntN(9)]
			b = appendVarint(r, b, n)
		case protowire.Fixed32Type:
			b = append(b, 1, 2, 3, 4)
		case protowire.Fixed64Type:
			b = append(b, 1, 2, 3, 4, 5, 6, 7, 8)
		case protowire.StartGroupType:
			b = append(b, randomMessage(r, depth-1)...)
			b = protowire.AppendTag(b, number, protowire.EndGroupType)
		case protowire.BytesType:
			inner := []byte([]string{"", "ugc", "user_id", "\xff", "é", "a\xe2\x82"}[r.IntN(6)])
			if depth > 0 && r.IntN(3) > 0 {
				inner = randomMessage(r, depth-1)
			}
			b = append(appendVarint(r, b, uint64(len(inner))), inner...)
		}
	}
	if r.IntN(20) == 0 {
		b = b[:r.IntN(len(b)+1)]
	}
	return b
}

// appendVarint appends n, sometimes in an over-long form.
func appendVarint(r *rand.Rand, b []byte, n uint64) []byte {
	b = protowire.AppendVarint(b, n)
	if r.IntN(20) == 0 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

func TestUnmarshalAgreesWithProto(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c exchange
	good := uint64(0)
	for range limiterstest.Sequences(50_000) {
		wire := randomMessage(r, 4)
		testSameAsProto(t, &c, wire)
		if proto.Unmarshal(wire, &ratelimitv3.RateLimitRequest{}) == nil {
			good++
		}
	}
	if good < limiterstest.Sequences(5_000) {
		t.Errorf("only %d of the messages were good: the test no longer tests much", good)
	}
}

// A message that occurs again is merged, and keeps the fields that only its first part has.
func TestRepeatedMessagesAreMerged(t *testing.T) {
	multiplier, noMultiplier, unit := []byte{tagOverrideMultiplier, 2, tagWrapped, 3}, []byte{tagOverrideMultiplier, 0}, []byte{tagOverrideUnit, 2}
	limit := func(fields ...[]byte) []byte {
		return protowire.AppendBytes([]byte{tagLimit}, bytes.Join(fields, nil))
	}
	for _, descriptor := range [][]byte{
		limit(multiplier, noMultiplier),
		append(limit(multiplier), limit(noMultiplier)...),
		append(limit(multiplier), limit(unit)...),
		{tagDescriptorAddend, 2, tagWrapped, 7, tagDescriptorAddend, 0},
	} {
		testSameAsProto(t, new(exchange), protowire.AppendBytes([]byte{tagDescriptors}, descriptor))
	}
}

// Clients choose values, so invalid UTF-8 in a value must not fail the request. Operators choose
// domains and keys.
func TestValueWithInvalidUTF8IsDecoded(t *testing.T) {
	request := func(domain, key, value string) []byte {
		entry := protowire.AppendString(protowire.AppendVarint(nil, tagKey), key)
		entry = protowire.AppendString(protowire.AppendVarint(entry, tagValue), value)
		d := protowire.AppendBytes(protowire.AppendVarint(nil, tagEntries), entry)
		wire := protowire.AppendString(protowire.AppendVarint(nil, tagDomain), domain)
		return protowire.AppendBytes(protowire.AppendVarint(wire, tagDescriptors), d)
	}
	for sent, want := range map[string]string{
		"alice": "alice", "é\ufffd": "é\ufffd", "\xff": "\ufffdff", "a\xffb": "a\ufffdffb", "a\xc3": "a\ufffdc3", "\xed\xa0\x80é": "\ufffded\ufffda0\ufffd80é",
	} {
		var m message
		if err := m.unmarshal(request("d", "k", sent)); err != nil || m.descriptors[0].entries[0].Value != want {
			t.Errorf("%q: %+v, %v, want %q", sent, m.descriptors, err, want)
		}
	}
	for _, c := range [][2]string{{"\xff", "k"}, {"d", "\xff"}} {
		if err := new(message).unmarshal(request(c[0], c[1], "v")); !errors.Is(err, errNotUTF8) {
			t.Errorf("domain %q, key %q: %v, want %v", c[0], c[1], err, errNotUTF8)
		}
	}
}

func TestUnmarshalBoundsMemory(t *testing.T) {
	var c exchange
	one, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
	}}})
	must.Succeed(t, err)
	testSameAsProto(t, &c, []byte(strings.Repeat(string(one), 100_000)))
	if cap(c.message.descriptors) > 2*decide.MaxDescriptors {
		t.Errorf("room for %d descriptors", cap(c.message.descriptors))
	}
	entries := strings.Repeat("\x0a\x03\x0a\x01k", 100_000)
	testSameAsProto(t, &c, protowire.AppendString([]byte{tagDescriptors}, entries))
	if n := cap(c.message.descriptors[0].entries); n > 2*decide.MaxEntries {
		t.Errorf("room for %d entries", n)
	}
}

// A string of a request must not change when the next request reuses its memory.
func TestDecodedTextOutlivesTheCall(t *testing.T) {
	var c exchange
	wire, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "first", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
	}}})
	must.Succeed(t, err)
	must.Succeed(t, c.message.unmarshal(wire))
	domain, key := c.message.domain, c.message.descriptors[0].entries[0].Key
	clear(wire)
	c.message.clear()
	if domain != "first" || key != "k" {
		t.Errorf("%q, %q", domain, key)
	}
}

func FuzzUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomMessage(r, 4))
	}
	var c exchange
	f.Fuzz(func(t *testing.T, wire []byte) { testSameAsProto(t, &c, wire) })
}

func randomDecision(r *rand.Rand, names []string) decide.Decision {
	number := func() uint32 { return []uint32{0, 1, 127, 128, r.Uint32(), math.MaxUint32}[r.IntN(6)] }
	large := func() int64 { return []int64{int64(number()), math.MaxUint32 + 1, limiters.LargestMax}[r.IntN(3)] }
	d := decide.Decision{Plan: &decide.Plan{}, Outcome: []decide.Outcome{decide.Undecided, decide.Allowed}[r.IntN(2)]}
	if r.IntN(4) > 0 {
		d.Limits = []descriptors.RateLimit{{
			Name: names[r.IntN(len(names))], RequestsPerUnit: large(), UnitMultiplier: number(),
			Unit: descriptors.Unit(1 + r.IntN(int(descriptors.Year))),
		}}
		v := limiters.Verdict{Allowed: true, Remaining: large(), ResetAfter: time.Duration(number()) * time.Second}
		if r.IntN(2) == 0 {
			d.Outcome, d.Reason, v.Allowed, v.RetryAfter = decide.Denied, decide.OverLimit, false, v.ResetAfter/2
		}
		d.Verdicts = []limiters.Verdict{v}
	} else if r.IntN(2) == 0 {
		d.Reason = decide.Unlimited
	}
	return d
}

// statusMessage returns the status of a decision as Envoy's generated type.
func statusMessage(d *decide.Decision) *ratelimitv3.RateLimitResponse_DescriptorStatus {
	m := &ratelimitv3.RateLimitResponse_DescriptorStatus{Code: codeOf[d.Outcome], LimitRemaining: saturated(d.Remaining())}
	l, v := d.DecidingLimit()
	if l == nil {
		return m
	}
	m.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		RequestsPerUnit: saturated(l.RequestsPerUnit),
		Unit:            unitOfLimit[l.Unit],
		Name:            l.Name,
	}
	if l.UnitMultiplier > 1 {
		m.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(l.UnitMultiplier)
	}
	m.DurationUntilReset = &durationpb.Duration{Seconds: ceilSeconds(untilReset(v))}
	return m
}

// responseMessage returns a response as Envoy's generated type. A full one has the headers a, b and
// c, and the request's descriptors in the dynamic metadata.
func responseMessage(t *testing.T, r *decide.Result, full bool) *ratelimitv3.RateLimitResponse {
	t.Helper()
	m := &ratelimitv3.RateLimitResponse{OverallCode: overallCode(r)}
	for i := range r.Decisions {
		m.Statuses = append(m.Statuses, statusMessage(&r.Decisions[i]))
	}
	metadata := map[string]any{}
	if full {
		m.ResponseHeadersToAdd = headerMessages(r.Decisions)
		metadata["domain"], metadata["descriptors"] = r.Domain, descriptorMetadata(r.Decisions)
	}
	if r.Denied && slices.ContainsFunc(r.Decisions, isDenied) {
		metadata["denied_by"] = deniedByMessage(r)
	}
	if len(metadata) > 0 {
		var err error
		m.DynamicMetadata, err = structpb.NewStruct(metadata)
		must.Succeed(t, err)
	}
	return m
}

// deniedByMessage returns the description of a denial by limits without a rule.
func deniedByMessage(r *decide.Result) map[string]any {
	shown := map[string]any{"domain": r.Domain, "reason": "over_limit"}
	if d := &r.Decisions[r.DenyingDescriptorIndex()]; d.Limits[0].Name != "" {
		shown["limit"] = descriptors.TruncateWithHash(d.Limits[0].Name, maxSentNameBytes)
	} else {
		shown["limit"] = "0"
	}
	return shown
}

func isDenied(d decide.Decision) bool { return d.Outcome == decide.Denied }

// headerMessages returns the headers a, b and c: of the last denied descriptor, or else of the one
// with the fewest remaining hits.
func headerMessages(decisions []decide.Decision) []*corev3.HeaderValue {
	var shown *decide.Decision
	for i := range decisions {
		d := &decisions[i]
		_, v := d.DecidingLimit()
		switch {
		case isDenied(*d):
			shown = d
		case v == nil || d.Remaining() == math.MaxUint32 || shown != nil && isDenied(*shown):
		case shown == nil || d.Remaining() < shown.Remaining():
			shown = d
		}
	}
	if shown == nil {
		return nil
	}
	l, v := shown.DecidingLimit()
	return []*corev3.HeaderValue{
		{Key: "a", Value: fmt.Sprint(saturated(l.RequestsPerUnit))},
		{Key: "b", Value: fmt.Sprint(saturated(v.Remaining))},
		{Key: "c", Value: fmt.Sprint(ceilSeconds(untilReset(v)))},
	}
}

// descriptorMetadata returns the dynamic metadata of descriptors with the entry k=v.
func descriptorMetadata(decisions []decide.Decision) []any {
	all := make([]any, len(decisions))
	for i, d := range decisions {
		shown := map[string]any{"entries": []any{"k=v"}}
		if l, v := d.DecidingLimit(); l != nil && max(l.RequestsPerUnit, v.Remaining) > math.MaxUint32 {
			shown["requestsPerUnit"], shown["limitRemaining"] = l.RequestsPerUnit, v.Remaining
		}
		all[i] = shown
	}
	return all
}

func TestEncodedResponseDecodesByProto(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	names := []string{"", "n", strings.Repeat("é", 40), strings.Repeat("n", 150), strings.Repeat("long", 100), strings.Repeat("longer", 4000)}
	plain, full := New(nil, Options{}), New(nil, Options{DynamicMetadata: true, Headers: Headers{"a", "b", "c"}})
	for range limiterstest.Sequences(20_000) {
		var c exchange
		c.observation.Domain, c.observation.Denied = []string{"ugc", strings.Repeat("d", maxSentNameBytes)}[r.IntN(2)], r.IntN(2) == 0
		for range r.IntN(6) {
			d := randomDecision(r, names)
			d.Domain = c.observation.Domain
			c.observation.Decisions = append(c.observation.Decisions, d)
			c.message.addDescriptor().addEntry(descriptors.Entry{Key: "k", Value: "v"})
		}
		for _, s := range []*Service{plain, full} {
			wire := s.marshal(&c)
			want := responseMessage(t, &c.observation.Result, s == full)
			if got := decoded(t, mem.BufferSlice{mem.SliceBuffer(wire)}); !proto.Equal(got, want) {
				t.Fatalf("%+v:\n got %v\nwant %v", c.observation.Decisions, got, want)
			}
		}
	}
}

// Calls are pooled: a response must not show anything of another request.
func TestConcurrentCallsDoNotMix(t *testing.T) {
	s := New(decide.New(parsed(t, rules), limiterstest.NewReference(), decide.Options{}), Options{})
	t.Run("concurrent calls", func(t *testing.T) {
		for worker := range 8 {
			t.Run(fmt.Sprint("worker ", worker), func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(7, uint64(worker)))
				for range 500 {
					n := 1 + r.IntN(30)
					wire := []byte("\x0a\x03ugc")
					want := make([]bool, n)
					for i := range n {
						want[i] = r.IntN(2) == 0
						action := "never"
						if want[i] {
							action = "unknown"
						}
						d, err := proto.Marshal(&commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
							{Key: "user_id", Value: "alice"}, {Key: "action", Value: action}}})
						must.Succeed(t, err)
						wire = protowire.AppendBytes(append(wire, tagDescriptors), d)
					}
					got := overTheWire(t, s, wire)
					if len(got.GetStatuses()) != n {
						t.Fatalf("%d statuses, want %d", len(got.GetStatuses()), n)
					}
					for i, status := range got.GetStatuses() {
						if (status.GetCode() == codeOK) != want[i] {
							t.Errorf("status %d is %v", i, status)
						}
					}
				}
			})
		}
	})
}

// overTheWire serves a request as a gRPC server does.
func overTheWire(t testing.TB, s *Service, wire []byte) *ratelimitv3.RateLimitResponse {
	t.Helper()
	response, err := ServeWire(t.Context(), s, wire)
	must.Succeed(t, err)
	return decoded(t, response)
}

// decoded decodes a response by Envoy's generated type.
func decoded(t testing.TB, data mem.BufferSlice) *ratelimitv3.RateLimitResponse {
	t.Helper()
	var got ratelimitv3.RateLimitResponse
	must.Succeed(t, proto.Unmarshal(data.Materialize(), &got))
	return &got
}
