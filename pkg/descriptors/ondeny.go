package descriptors

// Bounds of an [OnDeny]. Envoy buffers a response until the client has read it.
const (
	MaxDenyBodyBytes        = 16 << 10
	MaxDenyHeaders          = 16
	MaxDenyHeaderValueBytes = 4 << 10
)

// An OnDeny is the response to a denied request. It is immutable. If it is nil, the proxy chooses
// the response.
type OnDeny struct {
	Body        string   // "": none
	ContentType string   // the type of Body; "" without a Body and with Problem
	Headers     []Header // sorted by name
	// Problem sends a body of type application/problem+json that names the limits that denied the
	// request.
	Problem bool
}

// A Header is a response header. Its name is in lower case.
type Header struct{ Name, Value string }
