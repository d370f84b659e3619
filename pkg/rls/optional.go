package rls

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/receipt"
)

// Receipts configures the receipts in denials.
type Receipts struct {
	Header  string               // the name of the header
	Keys    func() *receipt.Keys // the keys in force, the first of which encrypts
	Replica string               // the name of this process
	// KeySecret is the secret of [descriptors.KeyHash].
	KeySecret []byte
}

// appendOptional appends the parts of a response that [Options] enable, and the description of a denial.
func (s *Service) appendOptional(b []byte, c *call) ([]byte, error) {
	result := &c.observation.Result
	if s.options.Headers.Limit != "" {
		b = s.appendLimitHeaders(b, result.Decisions)
	}
	if s.options.DynamicMetadata {
		var err error
		metadata := &ratelimitv3.RateLimitResponse{DynamicMetadata: dynamicMetadata(&c.message, result)}
		b, err = (proto.MarshalOptions{}).MarshalAppend(b, metadata)
		if err != nil {
			return b, err
		}
	}
	switch {
	case result.Denied:
		return s.appendDenial(b, result), nil
	case s.options.StandardHeaders:
		b = appendHeaderPolicies(b, headerPolicies(result, nil))
	}
	return b, nil
}

// appendLimitHeaders appends the headers of one limit: of the last descriptor that is denied by itself, or else of the first one
// with the fewest remaining hits. It skips descriptors that only end a lease or whose limit is unknown. It appends nothing if none is
// left.
func (s *Service) appendLimitHeaders(b []byte, decisions []decide.Decision) []byte {
	var shown *decide.Decision
	minimum := int64(math.MaxInt64)
	for i := range decisions {
		// envoyproxy/ratelimit omits a limit with 2^32 - 1 remaining hits.
		if d := &decisions[i]; d.DecidingLimit != nil && !d.End && d.Remaining < minimum && d.Remaining != math.MaxUint32 {
			shown, minimum = d, d.Remaining
		}
	}
	for i := range decisions {
		if d := &decisions[i]; d.DecidingLimit != nil && d.Outcome == decide.Denied && !d.QuotaMode {
			shown = d
		}
	}
	if shown == nil {
		return b
	}
	h := s.options.Headers
	b = appendHeader(b, h.Limit, strconv.FormatInt(int64(saturated(shown.DecidingLimit.RequestsPerUnit)), 10))
	b = appendHeader(b, h.Remaining, strconv.FormatInt(int64(saturated(shown.Remaining)), 10))
	return appendHeader(b, h.Reset, strconv.FormatInt(seconds(shown.UntilReset), 10))
}

func (s *Service) appendDenial(b []byte, result *decide.Result) []byte {
	denied, known := denialOf(result)
	if !known {
		return b
	}
	fields := denied.fields(result.Rules)
	b = appendDeniedBy(b, &fields)
	if s.options.DeniedByHeader != "" {
		b = appendHeader(b, s.options.DeniedByHeader, deniedByHeader(&fields))
	}
	if s.options.StandardHeaders {
		b = appendHeaderPolicies(b, headerPolicies(result, &denied))
		b = appendHeader(b, "retry-after", strconv.FormatInt(retryAfter(denied.wait, s.options.RetryAfterJitter), 10))
	}
	if s.options.Receipts.Header != "" {
		b = s.options.Receipts.append(b, result, &denied)
	}
	if response := denied.onDeny(result.Rules); response != nil {
		b = appendOnDeny(b, response, result, &denied)
	}
	return b
}

// append appends the header with a receipt.
func (o *Receipts) append(b []byte, result *decide.Result, denied *denial) []byte {
	keys := o.Keys()
	if keys == nil {
		return b
	}
	r := receipt.Receipt{Time: time.Now(), Replica: o.Replica, Reason: denied.reason()}
	r.RulesVersion, _ = strconv.ParseUint(result.Rules.Version(), 16, 64)
	if denied.Rule != nil && !denied.Override { // 0 stands for a limit that came with the request
		r.Limit = denied.Rule.Hash(max(0, denied.limit))
	}
	if key := result.Key(denied.descriptor); key != "" {
		r.Key, _ = strconv.ParseUint(descriptors.KeyHash(o.KeySecret, key), 16, 64)
	}
	if denied.limit >= 0 {
		r.Used, r.Max = denied.Verdicts[denied.limit].Used, denied.Limits[denied.limit].Compiled.Capacity()
	}
	var text [receipt.Size]byte
	return appendHeader(b, o.Header, string(keys.Append(text[:0], &r)))
}

// appendOnDeny appends the body and headers that the rules set. Envoy takes the content type from the headers.
func appendOnDeny(b []byte, response *descriptors.OnDeny, result *decide.Result, denied *denial) []byte {
	for _, h := range response.Headers {
		b = appendHeader(b, h.Name, h.Value)
	}
	switch {
	case response.Problem:
		b = appendHeader(b, "content-type", "application/problem+json")
		b = protowire.AppendBytes(append(b, tagRawBody), problemBody(result, denied))
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
func problemBody(result *decide.Result, denied *denial) []byte {
	p := problem{problemTypes + "quota-exceeded", "The request exceeds a limit", 429, nil}
	switch reason := denied.reason(); {
	case reason == decide.PenaltyReason:
		p.Type, p.Title = problemTypes+"abnormal-usage-detected", "The client is locked out because of too many denied requests"
	case denied.Reason == decide.StorePolicy:
		p.Type, p.Title = problemTypes+"temporary-reduced-capacity", "The service has a fault and cannot accept the request now"
	}
	for _, violated := range headerPolicies(result, denied) {
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
