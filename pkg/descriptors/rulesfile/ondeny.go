package rulesfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-rls/weir/pkg/descriptors"
)

const defaultContentType = "text/plain; charset=utf-8"

var onDenySchema = &MapSchema{Name: "an on_deny", Keys: []string{"body", "content_type", "headers", "problem"}}

// readOnDeny reads an on_deny; nil if absent or faulty. Aliases of one on_deny share the result.
func (r *reader) readOnDeny(f field) *descriptors.OnDeny {
	n, ok := r.valueOf(f)
	if !ok {
		return nil
	}
	o, done := r.onDenies[n]
	if !done {
		o = r.newOnDeny(n)
		r.onDenies[n] = o
	}
	return o
}

func (r *reader) newOnDeny(n *yaml.Node) *descriptors.OnDeny {
	f, ok := r.readFields(n, onDenySchema)
	if !ok {
		return nil
	}
	o := &descriptors.OnDeny{Problem: r.readBool(f.get("problem"))}
	o.Body, _ = r.readText(f.get("body"))
	o.ContentType, _ = r.readText(f.get("content_type"))
	o.Headers = r.readHeaders(f.get("headers"))
	switch {
	case r.faulty(f):
	case o.Problem && f.has("body"):
		r.fault(f.key("body"), "'problem: true' has a body of its own", "remove one of them")
	case o.Problem && f.has("content_type"):
		r.fault(f.key("content_type"), "the content type with 'problem: true' is application/problem+json", "remove it")
	case len(o.Body) > descriptors.MaxDenyBodyBytes:
		r.fault(f.value("body"), fmt.Sprintf("'body' has %d bytes, and at most %d are allowed", len(o.Body), descriptors.MaxDenyBodyBytes),
			"shorten it, or send a redirect to the page in 'headers'")
	case f.has("content_type") && o.Body == "":
		r.fault(f.key("content_type"), "'content_type' has no meaning without 'body'", "write 'body', or remove 'content_type'")
	case !httpguts.ValidHeaderFieldValue(o.ContentType):
		r.fault(f.value("content_type"), "'content_type' contains a control character", "want a type such as text/html")
	case o.Body == "" && !o.Problem && len(o.Headers) == 0:
		r.fault(n, "'on_deny' is empty", "set 'body', 'headers' or 'problem: true'")
	default:
		if o.Body != "" {
			o.ContentType = cmp.Or(o.ContentType, defaultContentType)
		}
		return o
	}
	return nil
}

// notInHeaders maps headers that Weir or Envoy sets to the advice for users.
var notInHeaders = map[string]string{
	"content-type":      "write 'content_type' instead",
	"retry-after":       "remove it: RESPONSE_HEADERS_STANDARD=draft-11 sends the wait of the limit",
	"ratelimit":         "remove it: RESPONSE_HEADERS_STANDARD=draft-11 sends it",
	"ratelimit-policy":  "remove it: RESPONSE_HEADERS_STANDARD=draft-11 sends it",
	"content-length":    "remove it: Envoy sets it",
	"transfer-encoding": "remove it: Envoy sets it",
	"connection":        "remove it: Envoy sets it",
	"keep-alive":        "remove it: Envoy sets it",
	"upgrade":           "remove it: a denied request is not upgraded",
	"trailer":           "remove it: the response has no trailers",
	"te":                "remove it: it is a header of requests",
	"host":              "remove it: it is a header of requests",
}

// readHeaders reads a map of header names and values, and returns it sorted by name.
func (r *reader) readHeaders(f field) []descriptors.Header {
	n, ok := r.valueOf(f)
	if !ok {
		return nil
	}
	const remedy = "want a map such as {x-support: https://example.com}"
	if n.Kind != yaml.MappingNode {
		r.fault(n, fmt.Sprintf("'headers' is %s, not a map", describe(n)), remedy)
		return nil
	}
	if count := len(n.Content) / 2; count == 0 || count > descriptors.MaxDenyHeaders {
		r.fault(n, fmt.Sprintf("'headers' has %d headers", count), fmt.Sprintf("want 1 to %d headers", descriptors.MaxDenyHeaders))
		return nil
	}
	var all []descriptors.Header
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, ok := r.visitEntry(n, i)
		if !ok {
			return nil
		}
		if h, ok := r.readHeader(key, n.Content[i+1]); ok {
			if slices.ContainsFunc(all, func(other descriptors.Header) bool { return other.Name == h.Name }) {
				r.fault(key, fmt.Sprintf("header '%s' is given twice", h.Name), "remove one")
			}
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b descriptors.Header) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (r *reader) readHeader(key, n *yaml.Node) (descriptors.Header, bool) {
	name := strings.ToLower(key.Value)
	if key.Kind != yaml.ScalarNode || !httpguts.ValidHeaderFieldName(name) {
		remedy := "want a name of letters, digits and '-'"
		if strings.HasPrefix(name, ":") {
			remedy = "remove it: Envoy sets the status by rate_limited_status of its filter"
		}
		r.fault(key, fmt.Sprintf("%s is not the name of a header", excerptOf(key)), remedy)
		return descriptors.Header{}, false
	}
	if remedy, reserved := notInHeaders[name]; reserved {
		r.fault(key, fmt.Sprintf("header '%s' is not allowed", name), remedy)
		return descriptors.Header{}, false
	}
	value, ok := r.readText(field{key, n})
	value = strings.TrimSpace(value)
	switch {
	case !ok:
	case value == "":
		r.fault(n, fmt.Sprintf("header '%s' has no value", name), "write a value, or remove the header")
	case len(value) > descriptors.MaxDenyHeaderValueBytes:
		r.fault(n,
			fmt.Sprintf("header '%s' has %d bytes, and at most %d are allowed", name, len(value), descriptors.MaxDenyHeaderValueBytes),
			"shorten it")
	case !httpguts.ValidHeaderFieldValue(value):
		r.fault(n, fmt.Sprintf("header '%s' contains a control character", name), "write it on one line")
	default:
		return descriptors.Header{Name: name, Value: value}, true
	}
	return descriptors.Header{}, false
}
