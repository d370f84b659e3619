package rls

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters/limiterstest"
)

// What is written here of the wire is what Envoy's own definitions say. A field that a new version of them adds to a
// request has to be looked at before it is passed over.
func TestTagsAreThoseOfTheDefinitions(t *testing.T) {
	request, response := (&ratelimitv3.RateLimitRequest{}).ProtoReflect().Descriptor(),
		(&ratelimitv3.RateLimitResponse{}).ProtoReflect().Descriptor()
	descriptor := request.Fields().ByName("descriptors").Message()
	status := response.Fields().ByName("statuses").Message()
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
		{(&wrapperspb.UInt32Value{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{"value": uint64(tagValueOfWrapper)}, nil},
		{response, map[protoreflect.Name]uint64{"overall_code": uint64(tagOverallCode), "statuses": uint64(tagStatuses)},
			[]protoreflect.Name{"response_headers_to_add", "request_headers_to_add", "raw_body", "dynamic_metadata", "quota"}},
		{status, map[protoreflect.Name]uint64{"code": uint64(tagCode), "current_limit": uint64(tagCurrentLimit),
			"limit_remaining": uint64(tagLimitRemaining), "duration_until_reset": uint64(tagDurationUntilReset)},
			[]protoreflect.Name{"quota"}},
		{status.Fields().ByName("current_limit").Message(), map[protoreflect.Name]uint64{
			"requests_per_unit": uint64(tagRequestsPerUnit), "unit": uint64(tagUnit), "name": uint64(tagName),
			"unit_multiplier": uint64(tagUnitMultiplier)}, nil},
		{(&durationpb.Duration{}).ProtoReflect().Descriptor(), map[protoreflect.Name]uint64{"seconds": uint64(tagSeconds)},
			[]protoreflect.Name{"nanos"}},
	} {
		fields := c.message.Fields()
		if fields.Len() != len(c.tags)+len(c.unused) {
			t.Errorf("%s has %d fields, want %d: look at the new ones", c.message.FullName(), fields.Len(), len(c.tags)+len(c.unused))
		}
		for name, tag := range c.tags {
			f := fields.ByName(name)
			typ := protowire.VarintType
			if f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.MessageKind {
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

// message is what was asked as a message, to be compared.
func (a *asking) message() *ratelimitv3.RateLimitRequest {
	m := &ratelimitv3.RateLimitRequest{Domain: a.domain, HitsAddend: a.addend}
	for i := range a.descriptors {
		d := &a.descriptors[i]
		sent := &commonv3.RateLimitDescriptor{IsNegativeHits: d.givesBack}
		for _, e := range d.entries {
			sent.Entries = append(sent.Entries, &commonv3.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if d.limited {
			sent.Limit = d.limit.message()
		}
		if d.addended {
			sent.HitsAddend = wrapperspb.UInt64(d.addend)
		}
		m.Descriptors = append(m.Descriptors, sent)
	}
	return m
}

// sameAsProto reads wire in both ways, into a call that was used before.
func sameAsProto(t *testing.T, c *call, wire []byte) {
	t.Helper()
	var want ratelimitv3.RateLimitRequest
	wantErr := proto.Unmarshal(wire, &want)
	err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, c)
	if err == nil && wantErr != nil && strings.Contains(wantErr.Error(), "invalid UTF-8") {
		return // in values: TestAValueThatIsNoUTF8IsTaken
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, where proto.Unmarshal has %v", wire, err, wantErr)
	}
	if err != nil {
		return
	}
	if c.asked.sent != len(want.GetDescriptors()) {
		t.Fatalf("%x: %d descriptors, want %d", wire, c.asked.sent, len(want.GetDescriptors()))
	}
	for i, d := range want.GetDescriptors() {
		if i < maxDescriptors && c.asked.descriptors[i].sent != len(d.GetEntries()) {
			t.Fatalf("%x: descriptor %d has %d entries, want %d", wire, i, c.asked.descriptors[i].sent, len(d.GetEntries()))
		}
		d.Entries = d.Entries[:min(len(d.GetEntries()), maxEntries)]
	}
	want.Descriptors = want.Descriptors[:min(len(want.GetDescriptors()), maxDescriptors)]
	discardUnknown(want.ProtoReflect())
	if got := c.asked.message(); !proto.Equal(got, &want) {
		t.Fatalf("%x:\n got %v\nwant %v", wire, got, &want)
	}
	var read call
	read.asked.read(&want)
	if got := read.asked.message(); !proto.Equal(got, &want) {
		t.Fatalf("read as a message:\n got %v\nwant %v", got, &want)
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

// randomMessage writes a message that is nearly one: fields that are known and that are not, twice, of a wrong wire type,
// in long varints, cut short.
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

// appendVarint appends n, now and then longer than need be.
func appendVarint(r *rand.Rand, b []byte, n uint64) []byte {
	b = protowire.AppendVarint(b, n)
	if r.IntN(20) == 0 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

func TestARequestIsReadAsProtobufReadsIt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c call
	good := 0
	for range 50_000 {
		wire := randomMessage(r, 4)
		sameAsProto(t, &c, wire)
		if proto.Unmarshal(wire, &ratelimitv3.RateLimitRequest{}) == nil {
			good++
		}
	}
	if good < 5_000 {
		t.Errorf("only %d of the messages were good: the test has gone blind", good)
	}
}

// Of what clients sent, values are taken as they are; what else is no UTF-8 was written by nobody who meant it.
func TestAValueThatIsNoUTF8IsTaken(t *testing.T) {
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
		var a asking
		if err := a.unmarshal(request("d", "k", sent)); err != nil || a.descriptors[0].entries[0].Value != want {
			t.Errorf("%q: %+v, %v, want %q", sent, a.descriptors, err, want)
		}
	}
	for _, c := range [][2]string{{"\xff", "k"}, {"d", "\xff"}} {
		if err := new(asking).unmarshal(request(c[0], c[1], "v")); !errors.Is(err, errNotUTF8) {
			t.Errorf("domain %q, key %q: %v, want %v", c[0], c[1], err, errNotUTF8)
		}
	}
}

func TestTooMuchIsCountedAndNotKept(t *testing.T) {
	var c call
	one, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	sameAsProto(t, &c, []byte(strings.Repeat(string(one), 100_000)))
	if cap(c.asked.descriptors) > 2*maxDescriptors {
		t.Errorf("room for %d descriptors", cap(c.asked.descriptors))
	}
	entries := strings.Repeat("\x0a\x03\x0a\x01k", 100_000)
	sameAsProto(t, &c, protowire.AppendString([]byte{byte(tagDescriptors)}, entries))
	if n := cap(c.asked.descriptors[0].entries); n > 2*maxEntries {
		t.Errorf("room for %d entries", n)
	}
}

// A string of a request that somebody keeps is not changed by the next request in the same memory.
func TestTextOutlivesTheBufferAndTheCall(t *testing.T) {
	var c call
	wire, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "first", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.asked.unmarshal(wire); err != nil {
		t.Fatal(err)
	}
	domain, key := c.asked.domain, c.asked.descriptors[0].entries[0].Key
	clear(wire)
	c.asked.clear()
	if domain != "first" || key != "k" {
		t.Errorf("%q, %q", domain, key)
	}
}

func FuzzUnmarshal(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomMessage(r, 4))
	}
	var c call
	f.Fuzz(func(t *testing.T, wire []byte) { sameAsProto(t, &c, wire) })
}

func randomStatus(r *rand.Rand, limits []descriptors.RateLimit) descriptorStatus {
	s := descriptorStatus{code: []ratelimitv3.RateLimitResponse_Code{codeUnknown, codeOK}[r.IntN(2)]}
	number := func() uint32 { return []uint32{0, 1, 127, 128, r.Uint32(), math.MaxUint32}[r.IntN(6)] }
	s.remaining = number()
	if r.IntN(4) > 0 {
		limit := limits[r.IntN(len(limits))]
		limit.RequestsPerUnit, limit.UnitMultiplier = number(), number()
		limit.Unit = descriptors.Unit(1 + r.IntN(int(descriptors.Year)))
		s.limit, s.reset = &limit, int64(number())
		if r.IntN(2) == 0 {
			s.code = codeOverLimit
		}
	}
	return s
}

func TestAResponseIsWrittenAsProtobufReadsIt(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	limits := []descriptors.RateLimit{{}, {Name: "n"}, {Name: strings.Repeat("é", 40)}, {Name: strings.Repeat("long", 100)},
		{Name: strings.Repeat("longer", 4000)}}
	plain, full := New(nil, nil, Options{}), New(nil, nil, Options{DynamicMetadata: true, Headers: Headers{"a", "b", "c"}})
	for range 20_000 {
		var c call
		c.asked.domain = "ugc"
		c.answer.Denied = r.IntN(2) == 0
		for range r.IntN(6) {
			c.statuses = append(c.statuses, randomStatus(r, limits))
			c.asked.next().add(descriptors.Entry{Key: "k", Value: "v"})
		}
		c.planned.matches = make([]match, len(c.statuses))
		for _, s := range []*Service{plain, full} {
			reply, err := s.reply(&c)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := received(t, reply), s.response(&c); !proto.Equal(got, want) {
				t.Fatalf("%+v:\n got %v\nwant %v", c.statuses, got, want)
			}
		}
	}
}

// Calls are used again: what one request said is not in the answer to the next.
func TestManyRequestsAtOnceAreNotMixedUp(t *testing.T) {
	s := New(parsed(t, rules), limiterstest.NewReference(), Options{})
	t.Run("at once", func(t *testing.T) {
		for worker := range 8 {
			t.Run("", func(t *testing.T) {
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
						if err != nil {
							t.Fatal(err)
						}
						wire = protowire.AppendBytes(append(wire, byte(tagDescriptors)), d)
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

// overTheWire asks as a gRPC server does.
func overTheWire(t testing.TB, s *Service, wire []byte) *ratelimitv3.RateLimitResponse {
	t.Helper()
	handle := ServiceDesc().Methods[0].Handler
	reply, err := handle(s, context.Background(), func(into any) error {
		return Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, into)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return received(t, reply)
}

// received is a reply as a client of Envoy's types has it.
func received(t testing.TB, reply any) *ratelimitv3.RateLimitResponse {
	t.Helper()
	data, err := Codec().Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	var got ratelimitv3.RateLimitResponse
	if err := proto.Unmarshal(data.Materialize(), &got); err != nil {
		t.Fatal(err)
	}
	return &got
}
