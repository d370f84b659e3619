package rls

import (
	"cmp"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
)

// A denial is the decision that explains why a request was denied.
type denial struct {
	*decide.Decision
	result          *decide.Result
	descriptorIndex int           // the index of Decision in the result
	limitIndex      int           // the index in Limits; -1: the rule denies, and no limit is known
	wait            time.Duration // until the request may be allowed; 0: unknown
}

// denialOf returns the denial to report, see [decide.Result.DenyingDescriptorIndex]. It returns
// false if no descriptor denies the request.
func denialOf(r *decide.Result) (denial, bool) {
	denier := r.DenyingDescriptorIndex()
	if denier < 0 {
		return denial{}, false
	}
	d := &r.Decisions[denier]
	return denial{Decision: d, result: r, descriptorIndex: denier, limitIndex: d.DenyingLimitIndex(), wait: r.RetryAfter()}, true
}

// isBy reports whether the limit at limitIndex of a descriptor denies. It is false for a nil d.
func (d *denial) isBy(descriptorIndex, limitIndex int) bool {
	return d != nil && d.descriptorIndex == descriptorIndex && d.limitIndex == limitIndex
}

// penalized reports whether a penalty denies the key.
func (d *denial) penalized() bool { return d.limitIndex >= 0 && d.Verdicts[d.limitIndex].Penalized }

func (d *denial) reason() string {
	if d.penalized() {
		return decide.PenaltyText
	}
	return d.Reason.String()
}

// limitName returns the name of the limit, see [decide.Plan.LimitLabel]; "" if no limit denies.
func (d *denial) limitName() string {
	if d.limitIndex < 0 {
		return ""
	}
	return descriptors.TruncateWithHash(d.LimitLabel(d.limitIndex), maxSentNameBytes)
}

// fields yields the fields that describe a denial, without any text of the request. It omits
// unknown fields.
func (d *denial) fields(yield func(name, text string) bool) {
	for _, f := range [...]struct{ name, text string }{
		{"domain", descriptors.TruncateWithHash(d.Domain, maxSentNameBytes)},
		{"rule", d.RuleName()},
		{"limit", d.limitName()},
		{"reason", d.reason()},
		{"rules_version", d.result.Rules.Version()},
	} {
		if f.text != "" && !yield(f.name, f.text) {
			return
		}
	}
}

// appendDenial appends the description of a denial, and the parts of it that [Options] and the
// rules enable.
func (s *Service) appendDenial(b []byte, result *decide.Result) []byte {
	d, found := denialOf(result)
	if !found {
		return b
	}
	b = appendDeniedBy(b, &d)
	if s.options.DeniedByHeader != "" {
		b = appendHeader(b, s.options.DeniedByHeader, deniedByHeader(&d))
	}
	if s.options.StandardHeaders {
		b = appendHeaderPolicies(b, headerPolicies(result, &d))
		b = appendNumberHeader(b, "retry-after", retryAfterSeconds(d.wait, s.options.RetryAfterJitter))
	}
	if s.options.Receipts.Header != "" {
		b = s.options.Receipts.append(b, &d)
	}
	return appendOnDeny(b, &d)
}

// appendDeniedBy appends the denial as dynamic metadata, for access logs.
func appendDeniedBy(b []byte, d *denial) []byte {
	b, metadata := openMessage(b, tagDynamicMetadata)
	b, entry := openMessage(b, tagFields)
	b, value := openMessage(appendText(b, tagFieldKey, "denied_by"), tagFieldValue)
	b, object := openMessage(b, tagStructValue)
	for name, text := range d.fields {
		b = appendStructText(b, name, text)
	}
	for _, start := range [...]int{object, value, entry, metadata} { // the innermost message first
		b = closeMessage(b, start)
	}
	return b
}

// deniedByHeader returns a denial as a structured field: the rule as its item, the other fields as
// parameters.
func deniedByHeader(d *denial) string {
	b := appendQuoted(nil, percentEncoded(cmp.Or(d.RuleName(), decide.OverrideName)))
	for name, text := range d.fields {
		if name != "rule" {
			b = appendQuoted(append(append(append(b, ';'), name...), '='), percentEncoded(text))
		}
	}
	return string(b)
}
