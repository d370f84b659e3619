package rulestest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/explain"
)

// explanation returns which limits a request is under, and why.
func (s *Suite) explanation(request *decide.Request) string {
	var b strings.Builder
	record := explain.With(explain.Options{Decide: s.settings.decide}, s.Rules, request)
	if err := record.WriteText(&b, false); err != nil {
		return err.Error() // unreachable: a Builder has no errors
	}
	return b.String()
}

// unlimitedReason returns why no rule limits the requests of a step. It is empty if a rule does, or if the step names a reason, a rule or a
// limit. The first request represents the others, which differ only in a number.
func (s *Suite) unlimitedReason(step *Step) string {
	names := func(w wanted) bool { return w.reason != nil || w.rule != nil || w.limit != nil }
	if names(step.want.decision) || slices.ContainsFunc(step.want.descriptors, names) {
		return ""
	}
	request := step.request
	request.Descriptors = slices.Clone(request.Descriptors)
	for i := range request.Descriptors {
		d := &request.Descriptors[i]
		if d.Override != nil {
			return ""
		}
		d.Entries = numbered(d.Entries, 1)
	}
	record := explain.With(explain.Options{Decide: s.settings.decide}, s.Rules, &request)
	reason := ""
	for i := range record.Descriptors {
		d := &record.Descriptors[i]
		if d.Result != decide.NoRule.String() && d.Result != decide.UnknownDomain.String() {
			return ""
		}
		if reason == "" {
			reason = d.Reason
		}
	}
	return reason
}

// outcome describes a decision of a result in the form of an expectation.
func outcome(r *decide.Result, d *decide.Decision) string {
	parts := []string{"verdict: " + verdictOf(r.Denied)}
	switch d.Reason {
	case decide.WithinLimit:
		parts = append(parts, fmt.Sprintf("remaining: %d", d.Remaining))
	case decide.OverLimit, decide.TooManyLeases, decide.NeverFits:
		parts = append(parts, "retry_after: "+retryAfter(d), "rule: "+rulesfile.Quoted(d.RuleName()))
		if name, _ := limitOf(d); name.name != "" || len(d.Limits) > 1 {
			parts = append(parts, "limit: "+rulesfile.Quoted(name.String()))
		}
		if !r.Denied || d.Reason == decide.TooManyLeases {
			parts = append(parts, "reason: "+d.Reason.String())
		}
	default:
		parts = append(parts, "reason: "+d.Reason.String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
