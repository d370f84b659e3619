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
	digits     = 8 // of a user's number: all requests have the same length
)

// A Request is a template: two requests differ only in the stream and the user.
type Request struct {
	Spread bool // each descriptor has a different user; else all have the same

	first, later template // the first on a connection fills HPACK's table; later headers are one byte each
	byStatus     bool     // the HTTP status is the answer
	domain       string
	actions      []string
}

type template struct {
	frames  []byte
	streams []int // offsets of the stream's number: four bytes each
	users   []int // offsets of the user's number: digits bytes each
	data    int   // bytes that flow control counts
}

// Decide returns a call of ShouldRateLimit with a descriptor per action: (user_id, user-00000000), (action, <action>).
func Decide(domain string, actions ...string) *Request {
	message := appendField(nil, 1, domain)
	var users []int
	for _, action := range actions {
		user := appendEntry(nil, "user_id", userPrefix+zeros)
		descriptor := appendEntry(user, "action", action)
		message = appendField(message, 2, string(descriptor))
		users = append(users, grpcPrefix+len(message)-len(descriptor)+len(user)-digits)
	}
	data := binary.BigEndian.AppendUint32(make([]byte, 1), uint32(len(message)))
	data = append(data, message...)

	r, block := &Request{domain: domain, actions: actions}, newBlock()
	for _, t := range []*template{&r.first, &r.later} {
		t.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, block.of(
			":method", "POST", ":scheme", "http", ":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			":authority", "ratelimit", "content-type", "application/grpc", "te", "trailers"))
		t.frame(http2.FrameData, http2.FlagDataEndStream, data, users...)
		t.data = len(data)
	}
	return r
}

// Repeated returns a call with the descriptors of r that many times, each with a different user.
func (r *Request) Repeated(times int) *Request {
	more := Decide(r.domain, slices.Repeat(r.actions, times)...)
	more.Spread = true
	return more
}

// Get returns a GET of / with the user in the header x-user-id and the action in x-action. The answer is the status: 200 or 429.
func Get(action string) *Request {
	r, block := &Request{byStatus: true}, newBlock()
	for _, t := range []*template{&r.first, &r.later} {
		headers := block.of(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "localhost", "x-action", action)
		headers = append(headers, 0) // a literal without indexing: the next request has another value
		for _, text := range []string{"x-user-id", userPrefix + zeros} {
			headers = append(append(headers, byte(len(text))), text...)
		}
		t.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersEndStream, headers, len(headers)-digits)
	}
	return r
}

const (
	grpcPrefix = 5 // of a message: the flag of compression, and the length
	zeros      = "00000000"
)

// frame adds a frame. users are the offsets of the user's number in its payload.
func (t *template) frame(kind http2.FrameType, flags http2.Flags, payload []byte, users ...int) {
	t.streams = append(t.streams, len(t.frames)+5)
	t.frames = appendFrame(t.frames, kind, flags, 0, payload)
	for _, at := range users {
		t.users = append(t.users, len(t.frames)-len(payload)+at)
	}
}

// append adds a request of the next user on a stream.
func (t *template) append(b []byte, stream uint32, users *Users, spread bool, random *rand.PCG) []byte {
	b = append(b, t.frames...)
	frames := b[len(b)-len(t.frames):]
	for _, at := range t.streams {
		binary.BigEndian.PutUint32(frames[at:], stream)
	}
	var number [digits]byte
	for i, at := range t.users {
		if i == 0 || spread {
			n := users.pick(random)
			for d := range number {
				number[digits-1-d] = byte('0' + n%10)
				n /= 10
			}
		}
		copy(frames[at:], number[:])
	}
	return b
}

func appendFrame(b []byte, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags))
	b = binary.BigEndian.AppendUint32(b, stream)
	return append(b, payload...)
}

// appendEntry adds an entry of a descriptor, appendField a field of a protobuf message that is text or a message.
func appendEntry(b []byte, key, value string) []byte {
	return appendField(b, 1, string(appendField(appendField(nil, 1, key), 2, value)))
}

func appendField(b []byte, number byte, text string) []byte {
	b = append(b, number<<3|2)
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// A block encodes headers with one table.
type block struct {
	encoder *hpack.Encoder
	buffer  bytes.Buffer
}

func newBlock() *block {
	b := &block{}
	b.encoder = hpack.NewEncoder(&b.buffer)
	return b
}

func (b *block) of(namesAndValues ...string) []byte {
	b.buffer.Reset()
	for i := 0; i < len(namesAndValues); i += 2 {
		// A Buffer accepts every write.
		_ = b.encoder.WriteField(hpack.HeaderField{Name: namesAndValues[i], Value: namesAndValues[i+1]})
	}
	return bytes.Clone(b.buffer.Bytes())
}
