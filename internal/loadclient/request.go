package loadclient

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	userPrefix = "user-"
	digits     = 8 // the digits in the number of a user or a lease: all requests have the same length
)

// A Request is a template of requests that differ only in stream, user and lease.
type Request struct {
	Spread bool // each descriptor has a different user; else all have the same

	call     call
	end      call // the end of a lease
	byStatus bool // the HTTP status is the answer
	domain   string
	actions  []string
}

// A call keeps separate templates for the first request of a connection, which fills HPACK's table,
// and for later ones, whose headers take one byte each.
type call struct{ first, later template }

type template struct {
	frames  []byte
	streams []int // offsets of the stream's number: four bytes each
	users   []int // offsets of the user's number: digits bytes each
	leases  []int // offsets of the lease's number: digits bytes each
	data    int   // bytes that flow control counts
}

// data returns the maximum bytes of a request that count for flow control.
func (r *Request) data() int { return max(r.call.later.data, r.end.later.data) }

// NewRequest returns a ShouldRateLimit request with a descriptor for each action: (user_id,
// user-00000000), (action, <action>).
func NewRequest(domain string, actions ...string) *Request {
	message := appendField(nil, 1, domain)
	var users []int // offsets in the message
	for _, action := range actions {
		user := appendEntry(nil, "user_id", userPrefix+zeros)
		descriptor := appendEntry(user, "action", action)
		message = appendField(message, 2, string(descriptor))
		users = append(users, len(message)-len(descriptor)+len(user)-digits)
	}
	return &Request{domain: domain, actions: actions, call: shouldRateLimit(message, users, nil)}
}

// NewLeaseRequest returns a pair of ShouldRateLimit requests, for [Leasing]. The first opens a
// lease: (user_id, user-00000000), (action, <action>), (lease, <id>). The second ends it, with
// marker as a further last entry: release or settle. Each has its own hits.
func NewLeaseRequest(domain, action, marker string, hits, endHits uint64) *Request {
	of := func(hits uint64, last []byte) call {
		user := appendEntry(nil, "user_id", userPrefix+zeros)
		lease := appendEntry(appendEntry(user, "action", action), "lease", leasePrefix+zeros)
		descriptor := append(slices.Clone(lease), last...)
		descriptor = appendField(descriptor, 3, string(binary.AppendUvarint([]byte{1 << 3}, hits)))
		message := appendField(appendField(nil, 1, domain), 2, string(descriptor))
		before := len(message) - len(descriptor) - digits
		return shouldRateLimit(message, []int{before + len(user)}, []int{before + len(lease)})
	}
	return &Request{domain: domain, actions: []string{action}, call: of(hits, nil), end: of(endHits, appendEntry(nil, marker, "1"))}
}

// OpensLeases reports whether r was returned by [NewLeaseRequest].
func (r *Request) OpensLeases() bool { return len(r.end.later.frames) > 0 }

// leasePrefix makes ids as long as a UUID.
const leasePrefix = "0c0ffee0-0000-4000-8000-0000"

// shouldRateLimit returns a call with a message, in which users and leases are offsets of numbers.
func shouldRateLimit(message []byte, users, leases []int) (c call) {
	data := binary.BigEndian.AppendUint32(make([]byte, 1), uint32(len(message)))
	data = append(data, message...)
	block := newBlock()
	for _, t := range []*template{&c.first, &c.later} {
		t.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, block.encode(
			":method", "POST", ":scheme", "http", ":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			":authority", "ratelimit", "content-type", "application/grpc", "te", "trailers"))
		t.frame(http2.FrameData, http2.FlagDataEndStream, data)
		t.data = len(data)
		start := len(t.frames) - len(message)
		for _, at := range users {
			t.users = append(t.users, start+at)
		}
		for _, at := range leases {
			t.leases = append(t.leases, start+at)
		}
	}
	return c
}

// Repeated returns a request with the descriptors of r repeated, each with a different user.
func (r *Request) Repeated(times int) *Request {
	more := NewRequest(r.domain, slices.Repeat(r.actions, times)...)
	more.Spread = true
	return more
}

// Get returns a GET of / with the headers x-user-id and x-action. Its verdict is the status: 200 or
// 429.
func Get(action string) *Request {
	r, block := &Request{byStatus: true}, newBlock()
	for _, t := range []*template{&r.call.first, &r.call.later} {
		headers := block.encode(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "localhost", "x-action", action)
		headers = append(headers, 0) // a literal without indexing: the next request has another value
		for _, text := range []string{"x-user-id", userPrefix + zeros} {
			headers = append(append(headers, byte(len(text))), text...)
		}
		t.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, headers)
		t.users = append(t.users, len(t.frames)-digits)
	}
	return r
}

const (
	grpcPrefix = 5 // bytes before a message: the flag of compression, and the length
	zeros      = "00000000"
)

func (t *template) frame(kind http2.FrameType, flags http2.Flags, payload []byte) {
	t.streams = append(t.streams, len(t.frames)+5)
	t.frames = appendFrame(t.frames, kind, flags, 0, payload)
}

// template returns the template of the next request.
func (r *Request) template(next choice, first bool) *template {
	c := &r.call
	if next.end {
		c = &r.end
	}
	if first {
		return &c.first
	}
	return &c.later
}

// append appends a request on a stream.
func (t *template) append(b []byte, stream uint32, next choice) []byte {
	b = append(b, t.frames...)
	frames := b[len(b)-len(t.frames):]
	for _, at := range t.streams {
		binary.BigEndian.PutUint32(frames[at:], stream)
	}
	for _, at := range t.users {
		putNumber(frames[at:], next.user)
	}
	for _, at := range t.leases {
		putNumber(frames[at:], next.lease)
	}
	return b
}

// spread gives each descriptor after the first its own user.
func (t *template) spread(frames []byte, users *Users, random *rand.PCG) {
	for _, at := range t.users[1:] {
		putNumber(frames[at:], users.choose(random).user)
	}
}

func putNumber(b []byte, n uint64) {
	for d := range digits {
		b[digits-1-d] = byte('0' + n%10)
		n /= 10
	}
}

func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// appendEntry appends an entry of a descriptor, and appendField a length-delimited protobuf field.
func appendEntry(b []byte, key, value string) []byte {
	return appendField(b, 1, string(appendField(appendField(nil, 1, key), 2, value)))
}

func appendField(b []byte, number byte, text string) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// A block encodes headers with one HPACK table.
type block struct {
	encoder *hpack.Encoder
	buffer  bytes.Buffer
}

func newBlock() *block {
	b := &block{}
	b.encoder = hpack.NewEncoder(&b.buffer)
	return b
}

func (b *block) encode(namesAndValues ...string) []byte {
	b.buffer.Reset()
	for i := 0; i < len(namesAndValues); i += 2 {
		// Writing to a Buffer never fails.
		_ = b.encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return bytes.Clone(b.buffer.Bytes())
}
