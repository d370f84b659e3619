package rulestest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-rls/weir/internal/offline/rulesyaml"
	"github.com/weir-rls/weir/internal/spelling"
	"github.com/weir-rls/weir/pkg/decide"
	"github.com/weir-rls/weir/pkg/descriptors/rulesfile"
	"github.com/weir-rls/weir/pkg/explain"
	"github.com/weir-rls/weir/pkg/limiters"
)

const maxHits = limiters.MaxHits

// readExpectation reads the outcome that the requests of a step must have.
func (p *parser) readExpectation(n rulesfile.Node, s *Step) expectation {
	e := expectation{line: n.Line()}
	if !n.IsMap() {
		e.decision = p.readVerdict(n)
		return e
	}
	f, ok := p.Fields(n, expectSchema)
	if !ok {
		return e
	}
	if !slices.ContainsFunc(expectSchema.Keys, f.Has) {
		p.Fault(n, "'expect' is empty, so every outcome passes", verdictRemedy)
	}
	e.decision = p.readWanted(f)
	e.allowed, e.denied = p.readCount(f, "allowed"), p.readCount(f, "denied")
	if counted := e.allowed != nil || e.denied != nil; counted && e.decision.denied != nil {
		p.Fault(f.Key("verdict"), "a verdict is for every request, and the numbers of allowed or denied requests are given too",
			"remove it, or the numbers")
	}
	if e.allowed != nil && e.denied != nil && *e.allowed+*e.denied != int64(s.Repeat) {
		p.Fault(n, fmt.Sprintf("%d allowed and %d denied are not %d requests", *e.allowed, *e.denied, s.Repeat),
			"correct one of them, or repeat")
	}
	if !f.Has("descriptors") {
		return e
	}
	items := p.Items(f.Value("descriptors"), "descriptors")
	for _, item := range items {
		if !item.IsMap() {
			e.descriptors = append(e.descriptors, p.readVerdict(item))
		} else if f, ok := p.Fields(item, decisionSchema); ok {
			e.descriptors = append(e.descriptors, p.readWanted(f))
		}
	}
	if want := len(s.request.Descriptors); len(items) != want {
		p.Fault(f.Value("descriptors"), fmt.Sprintf("%d descriptors are expected, and the request has %d", len(items), want),
			"write one for each descriptor of the request")
	}
	return e
}

const verdictRemedy = "want allowed, denied, or a map such as {verdict: denied, retry_after: 60s}"

func (p *parser) readVerdict(n rulesfile.Node) wanted {
	text, ok := p.Item(n, "'expect'")
	switch {
	case !ok:
	case text == "allowed", text == "denied":
		return wanted{denied: new(text == "denied")}
	default:
		remedy := verdictRemedy
		if best := spelling.Nearest(text, []string{"allowed", "denied"}); best != "" {
			remedy = "did you mean '" + best + "'?"
		}
		p.Fault(n, fmt.Sprintf("a verdict is %s", n), remedy)
	}
	return wanted{}
}

func (p *parser) readCount(f rulesfile.Fields, name string) *int64 {
	if !f.Has(name) {
		return nil
	}
	return new(f.Integer(name, 0, maxHits, 0))
}

// readWanted reads the outcome that one decision must have.
func (p *parser) readWanted(f rulesfile.Fields) wanted {
	w := wanted{remaining: p.readCount(f, "remaining"), used: p.readCount(f, "used")}
	if f.Has("verdict") {
		w.denied = new(f.Choice("verdict", "allowed", "denied") == "denied")
	}
	for name, to := range map[string]**string{"rule": &w.rule, "limit": &w.limit} {
		if f.Has(name) {
			*to = new(f.Text(name))
		}
	}
	if f.Has("reason") {
		w.reason = new(f.Choice("reason", reasons...))
	}
	if f.Has("penalized") {
		w.penalized = new(f.Bool("penalized"))
	}
	for name, to := range map[string]**time.Duration{"retry_after": &w.retryAfter, "reset_after": &w.resetAfter} {
		if !f.Has(name) {
			continue
		}
		d := never
		if name != "retry_after" || f.Text(name) != "never" {
			d = f.Duration(name, limiters.MaxWindow*2)
		}
		*to = &d
	}
	return w
}

// A Problem is one difference between the outcome of a request and what the test expects.
type Problem struct {
	Field string `json:"field"`
	Want  string `json:"want"`
	Got   string `json:"got"`
}

func (p Problem) String() string { return fmt.Sprintf("%s: want %s, got %s", p.Field, p.Want, p.Got) }

// beforeLast returns the expectation of the requests before the last one of a step. It has none of
// the numbers.
func (e expectation) beforeLast() expectation {
	e.decision = e.decision.withoutNumbers()
	e.descriptors = slices.Clone(e.descriptors)
	for i := range e.descriptors {
		e.descriptors[i] = e.descriptors[i].withoutNumbers()
	}
	return e
}

func (w wanted) withoutNumbers() wanted {
	w.remaining, w.used, w.retryAfter, w.resetAfter = nil, nil, nil, nil
	return w
}

// problems returns the differences between a result and the expectation.
func (e *expectation) problems(r *decide.Result) []Problem {
	var all []Problem
	if w := e.decision.denied; w != nil && *w != r.Denied {
		all = append(all, Problem{"verdict", verdictOf(*w), verdictOf(r.Denied)})
	}
	w := e.decision
	w.denied = nil
	all = append(all, w.problems("", deciding(r))...)
	for i := range e.descriptors {
		prefix := ""
		if len(e.descriptors) > 1 {
			prefix = fmt.Sprintf("descriptors[%d].", i)
		}
		all = append(all, e.descriptors[i].problems(prefix, &r.Decisions[i])...)
	}
	return all
}

func verdictOf(denied bool) string {
	if denied {
		return "denied"
	}
	return "allowed"
}

// deciding returns the decision that explains the answer to a request. If the request is denied,
// see [decide.Result.DenyingDescriptorIndex]. Otherwise it is a full quota, or else the decision
// with the fewest remaining hits. Of equal decisions it is the first.
func deciding(r *decide.Result) *decide.Decision {
	if denier := r.DenyingDescriptorIndex(); denier >= 0 {
		return &r.Decisions[denier]
	}
	best := 0
	for i := range r.Decisions {
		if decidesMore(&r.Decisions[i], &r.Decisions[best]) {
			best = i
		}
	}
	return &r.Decisions[best]
}

func decidesMore(d, than *decide.Decision) bool {
	if full := d.Outcome == decide.Denied; full != (than.Outcome == decide.Denied) {
		return full
	}
	_, v := d.DecidingLimit()
	_, other := than.DecidingLimit()
	return v != nil && (other == nil || v.Remaining < other.Remaining)
}

// differences collects the problems of one decision.
type differences struct {
	prefix string // precedes the names of fields
	all    []Problem
}

func (d *differences) compare(field, want, got string) {
	if want != got {
		d.all = append(d.all, Problem{d.prefix + field, want, got})
	}
}

// problems returns the differences of one decision. prefix precedes the names of the fields.
func (w *wanted) problems(prefix string, d *decide.Decision) []Problem {
	found := &differences{prefix: prefix}
	if w.denied != nil {
		found.compare("verdict", verdictOf(*w.denied), verdictOf(d.Outcome == decide.Denied))
	}
	if w.rule != nil {
		found.compare("rule", cmp.Or(*w.rule, "none"), cmp.Or(d.RuleName(), "none"))
	}
	if w.reason != nil {
		found.compare("reason", *w.reason, d.Reason.String())
	}
	name, number, verdict := limitOf(d)
	if w.limit != nil && *w.limit != number {
		found.compare("limit", cmp.Or(*w.limit, "none"), name)
	}
	if w.penalized != nil {
		found.compare("penalized", strconv.FormatBool(*w.penalized), strconv.FormatBool(verdict != nil && verdict.Penalized))
	}
	w.compareNumbers(found, d, verdict)
	return found.all
}

func (w *wanted) compareNumbers(found *differences, d *decide.Decision, verdict *limiters.Verdict) {
	remaining, used, resetAfter := "no limit", "no limit", "no limit"
	if verdict != nil {
		remaining, used = strconv.FormatInt(d.Remaining(), 10), strconv.FormatInt(verdict.Used, 10)
		resetAfter = verdict.ResetAfter.String()
	}
	if w.remaining != nil {
		found.compare("remaining", strconv.FormatInt(*w.remaining, 10), remaining)
	}
	if w.used != nil {
		found.compare("used", strconv.FormatInt(*w.used, 10), used)
	}
	if w.retryAfter != nil {
		found.compare("retry_after", explain.WaitText(*w.retryAfter), retryAfter(d))
	}
	if w.resetAfter != nil {
		found.compare("reset_after", w.resetAfter.String(), resetAfter)
	}
}

// retryAfter returns the time at which a denied hit fits. It also has a value for a rule in shadow
// mode, which denies nothing.
func retryAfter(d *decide.Decision) string {
	switch d.Reason {
	case decide.NeverFits:
		return "never"
	case decide.OverLimit, decide.TooManyLeases:
		_, v := d.DecidingLimit()
		return v.RetryAfter.String()
	case decide.BadLeaseID:
		return "none, because the lease id is bad"
	default:
		return "none, because the request is within its limits"
	}
}

// limitOf returns the limit that explains a decision: its name, or its number if it has none; its
// number within its rule, from 0; and its verdict. Without a limit it returns "none", "" and nil.
func limitOf(d *decide.Decision) (name, number string, verdict *limiters.Verdict) {
	limit, verdict := d.DecidingLimit()
	if limit == nil {
		return "none", "", nil
	}
	index := d.IndexInRule(d.DecidingLimitIndex)
	return limit.Label(index), strconv.Itoa(index), verdict
}

// unlimitedReason returns the reason why no rule limits the requests of a step. It is empty if a
// rule limits them, or if the step expects a reason, a rule or a limit. The first request
// represents the others, which differ only in their number.
func (s *Suite) unlimitedReason(step *Step) string {
	names := func(w wanted) bool { return w.reason != nil || w.rule != nil || w.limit != nil }
	if names(step.want.decision) || slices.ContainsFunc(step.want.descriptors, names) {
		return ""
	}
	request := step.request
	if slices.ContainsFunc(request.Descriptors, func(d decide.Descriptor) bool { return d.Override != nil }) {
		return ""
	}
	request.Descriptors = numberedDescriptors(request.Descriptors, 1)
	record := explain.ForRequest(explain.Options{Decide: s.server}, s.Rules, &request)
	reason := ""
	for i := range record.Descriptors {
		d := &record.Descriptors[i]
		if d.Result != decide.NoRule.String() && d.Result != decide.UnknownDomain.String() {
			return ""
		}
		reason = cmp.Or(reason, d.Reason)
	}
	return reason
}

// outcomeText describes a decision of a result in the form of an expectation.
func outcomeText(r *decide.Result, d *decide.Decision) string {
	parts := []string{"verdict: " + verdictOf(r.Denied)}
	switch d.Reason {
	case decide.WithinLimit:
		parts = append(parts, fmt.Sprintf("remaining: %d", d.Remaining()))
	case decide.OverLimit, decide.TooManyLeases, decide.NeverFits:
		parts = append(parts, "retry_after: "+retryAfter(d), "rule: "+rulesyaml.Quoted(d.RuleName()))
		if limit, _ := d.DecidingLimit(); limit.Name != "" || len(d.Limits) > 1 {
			name, _, _ := limitOf(d)
			parts = append(parts, "limit: "+rulesyaml.Quoted(name))
		}
		if !r.Denied || d.Reason == decide.TooManyLeases {
			parts = append(parts, "reason: "+d.Reason.String())
		}
	default:
		parts = append(parts, "reason: "+d.Reason.String())
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
