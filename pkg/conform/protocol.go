package conform

import (
	"fmt"
	"math"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func protocolChecks() []check {
	return []check{
		{"protocol.statuses", "Does each descriptor get one status, in the order of the request?", checkStatuses},
		{"protocol.domain_unknown", "Is a request of an unknown domain not limited?", checkUnknownDomain},
		{"protocol.domain_empty", "Does the service survive a request without a domain?", checkEmptyDomain},
		{"protocol.no_descriptors", "Does the service survive a request without descriptors?", checkNoDescriptors},
		{"protocol.no_entries", "Does the service survive a descriptor without entries?", checkNoEntries},
		{"protocol.empty_texts", "Does the service survive entries with an empty key or value?", checkEmptyTexts},
		{"protocol.unknown_fields", "Does the service ignore fields that it does not know?", checkUnknownFields},
		{"protocol.malformed", "Does a message that is not protobuf get an error?", checkMalformed},
		{"protocol.invalid_utf8", "Does the service survive a value that is not UTF-8?", checkInvalidUTF8},
		{"protocol.large_value", "Does the service survive values of 64 KiB and 1 MiB?", checkLargeValue},
		{"protocol.many_descriptors", "Does the service survive 1,000 descriptors, and 200 entries in one?", checkManyDescriptors},
	}
}

// crashChecks send requests that are known to crash some services. They run last.
func crashChecks() []check {
	return []check{
		{"crash.hits_32_bit", "Does a charge near 2^32 count in full?", checkHits32},
		{"crash.hits_64_bit", "Does a charge near 2^64 leave its key usable, and its limit in force?", checkHits64},
		{"crash.refund_64_bit", "Does a refund near 2^64 leave its key usable, and its limit in force?", checkRefund64},
		{"crash.override_unit_unknown", "Does the service survive an override without a unit?",
			func(t *trial) { checkBadUnit(t, typev3.RateLimitUnit_UNKNOWN) }},
		{"crash.override_unit_undefined", "Does the service survive an override with a unit that does not exist?",
			func(t *trial) { checkBadUnit(t, 99) }},
	}
}

func checkStatuses(t *trial) {
	all := []*descriptor{t.key("day_5"), newDescriptor("no_such_rule", "v"), t.key("day_100"), t.key("day_1000"), newDescriptor("run", t.uniqueName())}
	r := newRequest(all...)
	a := t.answered(r)
	limits := []uint32{5, 0, 100, 1000, 0}
	good := len(a.GetStatuses()) == len(limits)
	for i, n := range limits {
		good = good && a.limit(i).GetRequestsPerUnit() == n
	}
	if !good || !a.isOK() {
		t.wrong(r, a, "the statuses do not match the descriptors", "OK with limits of 5, none, 100, 1000 and none")
	}
}

// mayReject sends a request that a service may reject with an error. It fails the check if the
// service gives no answer at all. It returns false without an answer.
func (t *trial) mayReject(r *request, what string) (a answer, ok bool) {
	a = t.call(r)
	switch {
	case a.err == nil:
		return a, true
	case isConnectionLost(a.err):
		t.wrong(r, a, "the request gets no answer", "an answer, or an error that rejects the request")
	default:
		t.observe("the service rejects %s with %s", what, status.Code(a.err))
	}
	return a, false
}

// checkNoLimit sends a request without a limit. A denial is a fault.
func checkNoLimit(t *trial, r *request) {
	switch a, ok := t.mayReject(r, "the request"); {
	case !ok:
	case !a.isOK():
		t.wrong(r, a, "a request without a limit is denied", "OK, or an error")
	default:
		t.observe("the service answers OK")
	}
}

func checkUnknownDomain(t *trial) {
	r := newRequest(t.key("day_5"))
	r.Domain = "weir_conform_unknown_" + t.id
	checkNoLimit(t, r)
}

func checkEmptyDomain(t *trial) {
	r := newRequest(t.key("day_5"))
	r.Domain = ""
	checkNoLimit(t, r)
}

func checkNoDescriptors(t *trial) { checkNoLimit(t, newRequest()) }

func checkNoEntries(t *trial) { checkNoLimit(t, newRequest(&descriptor{})) }

func checkEmptyTexts(t *trial) {
	checkNoLimit(t, newRequest(newDescriptor("", "v")))
	checkNoLimit(t, newRequest(newDescriptor("", "")))
	t.expectLimit(newDescriptor("run", t.uniqueName(), "day_5", ""), 5)
}

// sendRaw sends bytes as a message on the first connection.
func (t *trial) sendRaw(wire []byte) answer {
	return t.send(t.ctx, t.conns[0], wire, grpc.ForceCodec(raw{}))
}

func wireOf(m proto.Message) []byte {
	wire, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages of this package are valid
	}
	return wire
}

func checkUnknownFields(t *trial) {
	d := t.key("day_5")
	unknown := protowire.AppendTag(nil, 1900, protowire.BytesType)
	unknown = protowire.AppendString(unknown, "unknown")
	unknown = protowire.AppendTag(unknown, 1901, protowire.VarintType)
	unknown = protowire.AppendVarint(unknown, 7)
	r := newRequest(d)
	for _, m := range []proto.Message{r, d, d.Entries[1]} {
		m.ProtoReflect().SetUnknown(unknown)
		if a := t.sendRaw(wireOf(r)); a.err != nil || a.limit(0).GetRequestsPerUnit() != 5 {
			t.wrong(r, a, "a field that the service does not know changes the answer", "a limit of 5")
		}
	}
}

func checkMalformed(t *trial) {
	valid := wireOf(newRequest(t.key("day_5")))
	for _, c := range []struct {
		what string
		wire []byte
	}{
		{"a message that is cut off", valid[:len(valid)-3]},
		{"random bytes", []byte{0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{"a length beyond the end", []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x00}},
		{"a tag with the field number 0", []byte{0x00, 0x01}},
		{"an end of a group without a start", append([]byte{0x0c}, valid...)},
		{"the domain as a number, cut off", []byte{0x08}},
	} {
		a := t.sendRaw(c.wire)
		e := Evidence{Request: fmt.Sprintf("%s: %x", c.what, c.wire[:min(len(c.wire), 24)]), Answer: a.String(), Expected: "an error of gRPC"}
		switch {
		case a.err == nil:
			e.Fault = "a message that is not protobuf gets an answer"
			t.fault(e)
		case isConnectionLost(a.err):
			e.Fault = "the service drops the connection, or does not answer"
			t.fault(e)
		}
	}
}

func checkInvalidUTF8(t *trial) {
	const marker = "MARKER-OF-BYTES"
	wire := wireOf(newRequest(newDescriptor("run", t.uniqueName(), "day_5", marker)))
	a := t.sendRaw([]byte(strings.Replace(string(wire), marker, strings.Repeat("\xff", len(marker)), 1)))
	switch {
	case isConnectionLost(a.err):
		t.fault(Evidence{Fault: "the service drops the connection, or does not answer", Request: "a value of 15 bytes 0xff",
			Answer: a.String(), Expected: "an answer, or an error that rejects the request"})
	case a.err != nil:
		t.observe("the service rejects the message with %s: Envoy lets such requests pass unless failure_mode_deny is true", status.Code(a.err))
	case a.limit(0).GetRequestsPerUnit() == 5:
		t.observe("the service limits the request")
	default:
		t.observe("the service answers without the limit: %s", a)
	}
}

// checkSurvival sends a request that a service may reject.
func checkSurvival(t *trial, what string, r *request, good func(answer) bool, expected string) {
	if a, ok := t.mayReject(r, what); ok && !good(a) {
		t.wrong(r, a, "the answer is wrong", expected)
	}
}

func checkLargeValue(t *trial) {
	for _, size := range []int{64 << 10, 1 << 20} {
		d := newDescriptor("run", t.uniqueName(), "day_5", strings.Repeat("x", size))
		checkSurvival(t, fmt.Sprintf("a value of %d KiB", size>>10), newRequest(d),
			func(a answer) bool { return a.isOK() && a.remaining() == 4 }, "OK with remaining 4")
	}
}

func checkManyDescriptors(t *trial) {
	r := newRequest()
	for range 1000 {
		r.Descriptors = append(r.Descriptors, t.key("day_5"))
	}
	checkSurvival(t, "1,000 descriptors", r, func(a answer) bool { return a.isOK() && len(a.GetStatuses()) == 1000 }, "OK with 1,000 statuses")
	d := t.key("day_5")
	for range 200 {
		d.Entries = append(d.Entries, &entry{Key: "more", Value: "v"})
	}
	checkSurvival(t, "200 entries in a descriptor", newRequest(d), func(a answer) bool { return a.isOK() && a.limit(0) == nil },
		"OK without a limit")
}

func checkHits32(t *trial) {
	for _, n := range []uint64{math.MaxUint32 - 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt32 + 1} {
		d := t.key("day_5")
		t.expectAllowed(withHits(d, 3), 2)
		t.expectDenied(withHits(d, n))
		t.expectDenied(withHits(d, 3))
	}
	r := newRequest(t.key("day_5"))
	r.HitsAddend = math.MaxUint32
	t.expect(r, "OVER_LIMIT", answer.isOverLimit)
}

func checkHits64(t *trial) {
	for _, n := range []uint64{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64 - 2, math.MaxUint64} {
		d := t.key("day_5")
		t.expectAllowed(withHits(d, 3), 2)
		r := newRequest(withHits(d, n))
		if a, ok := t.mayReject(r, fmt.Sprintf("%d hits", n)); ok && !a.isOverLimit() {
			t.wrong(r, a, "a charge far above the limit is allowed", "OVER_LIMIT")
		}
		r = newRequest(withHits(d, 3))
		if a := t.call(r); !a.isOverLimit() {
			t.wrong(r, a, fmt.Sprintf("after a charge of %d hits, the limit is no longer in force", n),
				"OVER_LIMIT, because 3 of 5 are used at least")
		}
	}
}

func checkRefund64(t *trial) {
	for _, n := range []uint64{math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		d := t.key("day_5")
		t.expectAllowed(withHits(d, 3), 2)
		r := newRequest(asRefund(d, n))
		if a := t.call(r); isConnectionLost(a.err) {
			t.wrong(r, a, "the request gets no answer", "an answer, or an error that rejects the request")
		}
		r = newRequest(withHits(d, 6))
		if a := t.call(r); !a.isOverLimit() {
			t.wrong(r, a, fmt.Sprintf("after a refund of %d hits, the limit is no longer in force", n),
				"OVER_LIMIT, because 6 hits exceed the limit of 5")
		}
	}
}

func checkBadUnit(t *trial, unit typev3.RateLimitUnit) {
	r := newRequest(withLimit(t.key("day_5"), 3, unit))
	a := t.call(r)
	switch {
	case isConnectionLost(a.err):
		t.wrong(r, a, "the service ends or does not answer: any client can stop it with one request",
			"an answer, or an error that rejects the request")
	case a.err != nil:
		t.observe("the service rejects the override with %s", status.Code(a.err))
	default:
		t.observe("the service answers %s", a)
	}
}
