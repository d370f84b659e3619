package descriptors

import "slices"

// The bounds of an [OnDeny]. Envoy keeps a response in memory until the client has read it.
const (
	MaxDenyBody        = 16 << 10 // bytes
	MaxDenyHeaders     = 16
	MaxDenyHeaderValue = 4 << 10 // bytes
)

// An OnDeny is the response to a request that a limit denies. It does not change and may be shared. A nil OnDeny leaves the
// response to the proxy.
type OnDeny struct {
	Body        string   // "": none
	ContentType string   // of Body; "" without a Body, and if Problem is set
	Headers     []Header // sorted by name
	// Problem says that the body is an application/problem+json with the names of the limits that deny the request.
	Problem bool
}

// A Header is a field of a response. Its name is in lower case.
type Header struct{ Name, Value string }

func (o *OnDeny) equal(other *OnDeny) bool {
	if o == nil || other == nil {
		return o == other
	}
	return o.Body == other.Body && o.ContentType == other.ContentType && o.Problem == other.Problem &&
		slices.Equal(o.Headers, other.Headers)
}
