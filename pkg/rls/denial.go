package rls

import (
	"cmp"
	"math"
	"time"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors"
	"github.com/weir-rls/weir/pkg/limiters"
)

// A denial is the decision that explains why a request was denied.
type denial struct {
	*decide.Decision
	descriptor int
	limit      int           // the index in Limits; -1: the rule denies, and no limit is known
	wait       time.Duration // until the request may be allowed; 0: unknown
}

// denialOf returns the denial to report: the descriptor with the longest wait. Descriptors in quota mode deny a request only together,
// so among them it is the one with the shortest wait. It returns false if no descriptor denies the request.
func denialOf(r *decide.Result) (denial, bool) {
	shown, quota, wait := -1, -1, time.Duration(0)
	longer := func(i, j int) bool { return j < 0 || waitOf(&r.Decisions[i]) > waitOf(&r.Decisions[j]) }
	for i := range r.Decisions {
		d := &r.Decisions[i]
		switch {
		case !r.Denies(d):
		case !d.Quota:
			wait = max(wait, retryWait(d))
			if longer(i, shown) {
				shown = i
			}
		case quota < 0 || longer(quota, i):
			quota = i
		}
	}
	if quota >= 0 {
		wait = max(wait, retryWait(&r.Decisions[quota]))
		if longer(quota, shown) {
			shown = quota
		}
	}
	if shown < 0 {
		return denial{}, false
	}
	d := &r.Decisions[shown]
	return denial{Decision: d, descriptor: shown, limit: d.Denying(), wait: wait}, true
}

// waitOf returns a wait that orders denied descriptors. Hits that never fit have the longest.
func waitOf(d *decide.Decision) time.Duration {
	if d.Reason == decide.NeverFits {
		return math.MaxInt64
	}
	return d.UntilReset
}

// retryWait returns the longest wait among the limits that deny a descriptor.
func retryWait(d *decide.Decision) (wait time.Duration) {
	for i := range d.Verdicts {
		if v := &d.Verdicts[i]; v.Err == nil && !v.Allowed && v.By != limiters.ByOnError {
			wait = max(wait, waitUnder(&d.Limits[i], v))
		}
	}
	return wait
}

// waitUnder returns how long a client should wait after a denial. For hits that never fit, it is at least one window, because only
// changed rules can help.
func waitUnder(l *descriptors.RateLimit, v *limiters.Verdict) time.Duration {
	if v.RetryAfter < 0 {
		return max(v.ResetAfter, l.Compiled.Window())
	}
	return v.RetryAfter
}

func (d *denial) reason() string {
	if d.limit >= 0 && d.Verdicts[d.limit].Penalized {
		return "penalty"
	}
	return d.Reason.String()
}

// limitText returns the name of the limit, see [decide.Decision.LimitName]; "" if no limit denies.
func (d *denial) limitText() string {
	if d.limit < 0 {
		return ""
	}
	return descriptors.Bounded(d.LimitName(d.limit), maxName)
}

// onDeny returns the response that the rules set for the denial, or nil. A limit in the request uses that of the rule's first
// limit.
func (d *denial) onDeny(rules *descriptors.Rules) *descriptors.OnDeny {
	var own *descriptors.OnDeny
	switch {
	case d.limit >= 0 && !d.Override:
		own = d.Limits[d.limit].OnDeny
	case d.Rule != nil && len(d.Rule.Limits) > 0:
		own = d.Rule.Limits[0].OnDeny
	}
	return cmp.Or(own, rules.Domain(d.Domain).OnDeny())
}

// A field is a part of the description of a denial.
type field struct{ name, text string }

// fields describes a denial without any text of the request. A field with an empty text is unknown.
func (d *denial) fields(rules *descriptors.Rules) [5]field {
	return [...]field{
		{"domain", descriptors.Bounded(d.Domain, maxName)}, {"rule", d.RuleName()}, {"limit", d.limitText()}, {"reason", d.reason()},
		{"rules_version", rules.Version()},
	}
}

// appendDeniedBy appends the denial as dynamic metadata, for access logs.
func appendDeniedBy(b []byte, fields *[5]field) []byte {
	b, metadata := openMessage(b, tagDynamicMetadata)
	b, entry := openMessage(b, tagFields)
	b, value := openMessage(appendText(b, tagFieldKey, "denied_by"), tagFieldValue)
	b, object := openMessage(b, tagStructValue)
	for _, f := range fields {
		if f.text != "" {
			b = appendTextField(b, f.name, f.text)
		}
	}
	return closeMessage(closeMessage(closeMessage(closeMessage(b, object), value), entry), metadata)
}

// deniedByHeader returns a denial as a structured field: the rule as its item, the other fields as parameters.
func deniedByHeader(fields *[5]field) string {
	rule, b := "override", []byte(nil)
	for _, f := range fields {
		switch {
		case f.text == "":
		case f.name == "rule":
			rule = f.text
		default:
			b = appendString(append(append(append(b, ';'), f.name...), '='), visible(f.text))
		}
	}
	return string(append(appendString(nil, visible(rule)), b...))
}
