package rls

import (
	"cmp"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// onDeny returns the response that the rules set for the denial, or nil. For a limit in the
// request, onDeny returns the response of the rule's first limit.
func (d *denial) onDeny() *descriptors.OnDeny {
	var fromLimit *descriptors.OnDeny
	switch {
	case d.limitIndex >= 0 && !d.HasOverride:
		fromLimit = d.Limits[d.limitIndex].OnDeny
	case d.Rule != nil && len(d.Rule.Limits) > 0:
		fromLimit = d.Rule.Limits[0].OnDeny
	}
	return cmp.Or(fromLimit, d.result.Rules.Domain(d.Domain).OnDeny())
}

// appendOnDeny appends the body and headers that the rules set, if any. Envoy takes the content
// type from the headers.
func appendOnDeny(b []byte, d *denial) []byte {
	response := d.onDeny()
	if response == nil {
		return b
	}
	for _, h := range response.Headers {
		b = appendHeader(b, h.Name, h.Value)
	}
	switch {
	case response.Problem:
		b = appendHeader(b, "content-type", "application/problem+json")
		b = protowire.AppendBytes(append(b, tagRawBody), problemBody(d))
	case response.Body != "":
		b = appendHeader(b, "content-type", response.ContentType)
		b = appendText(b, tagRawBody, response.Body)
	}
	return b
}

// A problem is the body of an application/problem+json (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Violated []string `json:"violated-policies,omitempty"`
}

// problemTypes is the registry of problem types of draft-ietf-httpapi-ratelimit-headers-11.
const problemTypes = "https://iana.org/assignments/http-problem-types#"

// problemBody describes a denial to the client, without any text of the request.
func problemBody(d *denial) []byte {
	p := problem{problemTypes + "quota-exceeded", "The request exceeds a limit", 429, nil}
	switch {
	case d.penalized():
		p.Type, p.Title = problemTypes+"abnormal-usage-detected", "The client is locked out because of too many denied requests"
	case d.Reason == decide.StorePolicy:
		p.Type, p.Title = problemTypes+"temporary-reduced-capacity", "The rate limit could not be checked, so the request was denied"
	}
	for _, violated := range headerPolicies(d.result, d) {
		if violated.denies {
			p.Violated = append(p.Violated, violated.name)
		}
	}
	body, err := json.Marshal(p)
	if err != nil {
		return nil // unreachable: the names are ASCII
	}
	return body
}
